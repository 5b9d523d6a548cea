#!/usr/bin/env python3
"""./dev test [full]: builds and runs every tier, prints each failure and each skip with its reason, closes with one line of counts.

Stages: release build and unit tests; cross-folder tests in Python against the release binary; lints; the fast unit tests under
address and undefined-behaviour sanitizers; queues, thread pool and server under the thread sanitizer. `full` adds the tests
whose name begins with Slow (C++) or marked full (Python), builds the micro-benchmarks, and runs each fuzz target for 60 s.

A skip whose reason names a tier that ESPALIER_REQUIRE_ISA lists (comma separated) counts as a failure: on a machine that is
there to test avx512, silence about avx512 is not success.
"""
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "test-results"
PROGRAM = ROOT / "build" / "release" / "espalier"
TSAN_FOLDERS = ["base", "cache", "engine", "server"]
SYMBOLIZER = "/usr/lib/llvm-14/bin/llvm-symbolizer"  # names in the sanitizers' reports
FUZZ_SECONDS = 60


@dataclass
class Tally:
    passed: int = 0
    failures: list = field(default_factory=list)  # "stage: test"
    skips: list = field(default_factory=list)  # ("stage: test", reason)

    def record(self, name, ok):
        if ok:
            self.passed += 1
        else:
            self.failures.append(name)

    def add_skip(self, name, reason):
        required = [tier for tier in os.environ.get("ESPALIER_REQUIRE_ISA", "").replace(" ", "").split(",") if tier]
        if any(re.search(rf"\b{re.escape(tier)}\b", reason) for tier in required):
            self.failures.append(f"{name} (required by ESPALIER_REQUIRE_ISA, but skipped: {reason})")
        else:
            self.skips.append((name, reason))


def heading(text):
    print(f"\n== {text}", flush=True)


def run(command, **extra_environment):
    environment = {**os.environ, **extra_environment}
    return subprocess.run([str(part) for part in command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


def read_junit(path, stage, tally):
    """Adds the cases of one GoogleTest or pytest XML file. Returns the number of failures in it."""
    n_failures = 0
    for case in ET.parse(path).getroot().iter("testcase"):
        name = f"{stage}: {case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            tally.record(name, ok=False)
            n_failures += 1
        elif skipped is not None:
            lines = (skipped.get("message") or skipped.text or "no reason given").strip().splitlines()
            tally.add_skip(name, lines[-1].strip())
        elif case.get("result", "completed") == "completed" and case.get("status", "run") == "run":
            tally.record(name, ok=True)
    return n_failures


def gtest_filter(preset, tier):
    """Slow tests are for `full`; a property test has one thread, so the thread sanitizer would see nothing."""
    left_out = ([] if tier == "full" else ["*.Slow*"]) + (["*Property.*"] if preset == "tsan" else [])
    return "*-" + ":".join(left_out) if left_out else "*"


def run_unit_tests(preset, tier, tally, folders=None):
    """Builds and runs the unit tests of a preset; a test program that dies without a report is one failure."""
    heading(f"unit tests, {preset}")
    targets = ["unit_tests"] if folders is None else [f"{folder}_test" for folder in folders]
    if preset == "release":
        targets.append("all" if tier == "full" else "espalier")
    if run(["scripts/build.sh", preset, *targets]) != 0:
        tally.record(f"{preset}: build", ok=False)
        return
    reports = RESULTS / preset
    reports.mkdir(parents=True)
    command = ["ctest", "--test-dir", f"build/{preset}", "--output-on-failure", "--no-tests=error", "-j", "2",
               "--output-junit", reports / "ctest.xml"]
    if folders is not None:
        command += ["-R", "^(" + "|".join(folders) + ")$"]
    run(command, GTEST_OUTPUT=f"xml:{reports}/", GTEST_FILTER=gtest_filter(preset, tier),
        ASAN_OPTIONS=f"detect_leaks=1:strict_string_checks=1:external_symbolizer_path={SYMBOLIZER}",
        UBSAN_OPTIONS=f"print_stacktrace=1:external_symbolizer_path={SYMBOLIZER}",
        TSAN_OPTIONS=f"halt_on_error=1:second_deadlock_stack=1:external_symbolizer_path={SYMBOLIZER}")
    if not (reports / "ctest.xml").exists():
        tally.record(f"{preset}: ctest", ok=False)
        return
    for case in ET.parse(reports / "ctest.xml").getroot().iter("testcase"):
        report = reports / f"{case.get('name')}_test.xml"
        n_failures = read_junit(report, preset, tally) if report.exists() else 0
        if case.get("status") != "run" and n_failures == 0:
            tally.record(f"{preset}: {case.get('name')}_test ended abnormally", ok=False)


def run_python_tests(tier, tally):
    heading("cross-folder tests")
    if not PROGRAM.exists():
        tally.record("python: not run, the release build failed", ok=False)
        return
    report = RESULTS / "python.xml"
    command = [".venv/bin/python", "-m", "pytest", "tests", "-q", "-rs", "--junitxml", report]
    if tier != "full":
        command += ["-m", "not full"]
    code = run(command, ESPALIER_BIN=str(PROGRAM), PYTHONDONTWRITEBYTECODE="1")
    n_failures = read_junit(report, "python", tally) if report.exists() else 0
    if code != 0 and n_failures == 0:
        tally.record(f"python: pytest ended with exit code {code}", ok=False)


def run_lints(tally):
    heading("lints")
    results = RESULTS / "lints.txt"
    run(["scripts/lint.sh"], LINT_RESULTS=str(results))
    lines = results.read_text().split("\n") if results.exists() else []
    if not lines:
        tally.record("lint: scripts/lint.sh", ok=False)
    for line in filter(None, lines):
        verdict, name = line.split(" ", 1)
        tally.record(f"lint: {name}", ok=verdict == "ok")


def run_fuzz(tally):
    heading(f"fuzz targets, {FUZZ_SECONDS} s each")
    results = RESULTS / "fuzz.txt"
    code = run(["scripts/fuzz.sh", FUZZ_SECONDS], FUZZ_RESULTS=str(results))
    lines = results.read_text().split("\n") if results.exists() else []
    if code != 0 and not any(line.startswith("FAIL") for line in lines):
        tally.record("fuzz: scripts/fuzz.sh", ok=False)
    for line in filter(None, lines):
        verdict, name = line.split(" ", 1)
        tally.record(f"fuzz: {name}", ok=verdict == "ok")


def print_summary(tally, times):
    heading("summary")
    print("  ".join(f"{name} {seconds:.0f} s" for name, seconds in times))
    for name, reason in tally.skips:
        print(f"skipped  {name}: {reason}")
    for name in tally.failures:
        print(f"FAILED   {name}")
    print(f"{tally.passed} passed, {len(tally.failures)} failed, {len(tally.skips)} skipped", flush=True)


def main():
    tier = sys.argv[1] if len(sys.argv) > 1 else "fast"
    if tier not in ("fast", "full") or len(sys.argv) > 2:
        print("usage: ./dev test [full]", file=sys.stderr)
        return 2
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    tally = Tally()
    times = []
    stages = [("release", lambda: run_unit_tests("release", tier, tally)), ("python", lambda: run_python_tests(tier, tally)),
              ("lint", lambda: run_lints(tally)), ("asan-ubsan", lambda: run_unit_tests("asan-ubsan", "fast", tally)),
              ("tsan", lambda: run_unit_tests("tsan", "fast", tally, TSAN_FOLDERS))]
    if tier == "full":
        stages.append(("fuzz", lambda: run_fuzz(tally)))
    for name, stage in stages:
        start = time.monotonic()
        stage()
        times.append((name, time.monotonic() - start))
    print_summary(tally, times)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
