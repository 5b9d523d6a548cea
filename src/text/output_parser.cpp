#include "text/output_parser.h"

#include "text/output_parser_machine.h"

namespace espalier::text {

struct OutputParser::Impl {
    Impl(const ToolFormat& format, const std::vector<Value>& tools, PromptState state)
        : gate(format), machine(format, tools, state) {}

    SymbolGate gate;
    OutputMachine machine;
    std::string symbols;
};

OutputParser::OutputParser(const ToolFormat& format, const std::vector<Value>& tools, PromptState state)
    : impl_(std::make_unique<Impl>(format, tools, state)) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

void OutputParser::push(std::string_view text, bool is_marker, std::vector<OutputDelta>& out) {
    impl_->symbols.clear();
    impl_->gate.push(text, is_marker, impl_->symbols);
    impl_->machine.sink().set_target(&out);
    impl_->machine.feed(impl_->symbols);
}

void OutputParser::finish(StopCause cause, std::vector<OutputDelta>& out) {
    impl_->symbols.clear();
    impl_->gate.flush(impl_->symbols);
    impl_->machine.sink().set_target(&out);
    impl_->machine.feed(impl_->symbols);
    impl_->machine.finish(cause);
}

const ParsedOutput& OutputParser::parsed() const {
    return impl_->machine.sink().parsed();
}

const std::map<std::string, int>& OutputParser::repairs() const {
    return impl_->machine.sink().repairs();
}

const ByteAccount& OutputParser::bytes() const {
    return impl_->machine.sink().bytes();
}

}  // namespace espalier::text
