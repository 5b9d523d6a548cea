#include "text/jinja/convert.h"

#include "base/json.h"

namespace espalier::text::jinja {

bool to_val(Runtime& rt, const Value& value, Val& out, int depth) {
    // Parsed JSON is at most kJsonDepthMax deep; a request wraps it in a few levels of its own.
    constexpr int kDepthMax = kJsonDepthMax + 32;
    if (depth > kDepthMax) return rt.fail(ErrorKind::limit, "context value nested too deeply");
    if (const ValueList* list = value.as_list()) {
        ValList items(list->size());
        for (size_t i = 0; i < list->size(); ++i) {
            if (!to_val(rt, (*list)[i], items[i], depth + 1)) return false;
        }
        return rt.make_list(std::move(items), ListObject::Kind::list, out);
    }
    if (const ValueDict* dict = value.as_dict()) {
        DictObject members;
        members.members.reserve(dict->size());
        for (const auto& [name, member] : *dict) {
            Val converted;
            if (!to_val(rt, member, converted, depth + 1)) return false;
            members.put(Val(name), std::move(converted));
        }
        return rt.make_dict(std::move(members), out);
    }
    if (value.is_none()) out = Val::none();
    else if (const bool* boolean = value.as_bool()) out = *boolean;
    else if (const int64_t* integer = value.as_int()) out = *integer;
    else if (const double* number = value.as_float()) out = *number;
    else if (const BigInt* big = value.as_big_int()) out = Val(*big);
    else if (auto text = value.share_string()) out = Val(std::move(text));
    else out = Val();
    return true;
}

}  // namespace espalier::text::jinja
