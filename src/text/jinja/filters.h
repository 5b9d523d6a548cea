// The filters, declared for their table.
#pragma once

#include "text/jinja/builtins.h"

namespace espalier::text::jinja {

// filters_text.cpp
bool filter_capitalize(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_center(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_escape(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_force_escape(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_format(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_indent(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_lower(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_replace(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_safe(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_string(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_title(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_tojson(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_trim(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_truncate(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_upper(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_urlencode(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_wordcount(Runtime& rt, const Val& value, const CallArgs& args, Val& out);

// filters_number.cpp
bool filter_abs(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_float(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_int(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_round(Runtime& rt, const Val& value, const CallArgs& args, Val& out);

// filters_sequence.cpp
bool filter_batch(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_first(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_items(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_join(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_last(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_length(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_list(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_map(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_reject(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_rejectattr(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_reverse(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_select(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_selectattr(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_slice(Runtime& rt, const Val& value, const CallArgs& args, Val& out);

// filters_order.cpp
bool filter_dictsort(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_groupby(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_max(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_min(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_sort(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_sum(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
bool filter_unique(Runtime& rt, const Val& value, const CallArgs& args, Val& out);

}  // namespace espalier::text::jinja
