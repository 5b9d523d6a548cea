// espalier doctor: what this machine offers a model, and what to change.
#include <cstdio>
#include <memory>

#include "app/commands.h"
#include "base/environment.h"
#include "probe/doctor.h"

namespace espalier::app {
namespace {

struct DoctorFlags {
    probe::DoctorOptions options;
    bool as_json = false;
};

Status examine(const DoctorFlags& flags) {
    TRY_ASSIGN(const probe::DoctorReport report, probe::run_doctor(flags.options));
    if (flags.as_json) std::puts(dump_json(report.to_json(), 2).c_str());
    else std::printf("%s\n%s", version_text().c_str(), report.to_text().c_str());
    return {};
}

}  // namespace

void add_doctor(CLI::App& parent, Action& action) {
    auto flags = std::make_shared<DoctorFlags>();
    flags->options.isa = environment_variable("ESPALIER_ISA").value_or("");
    CLI::App* c = parent.add_subcommand("doctor", "Examines this machine and says what to change");
    c->add_option("--threads", flags->options.n_threads, "Worker threads, 0 = all CPUs")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    c->add_flag("--json", flags->as_json, "Print the result as JSON");
    c->footer("Example: espalier doctor");
    c->callback([flags, &action] { action = [flags] { return examine(*flags); }; });
}

}  // namespace espalier::app
