"""A thousand turns of twenty conversations in memory for four: it stays flat, and hits are what the policy predicts.

With ESPALIER_PLOTS=DIR the resident size is drawn to DIR/cache-memory.svg (docs/ has one).
"""
import json
import os
from pathlib import Path

import pytest

from test_prefix_cache import TOOL, USER, Agent, call, result, user

TURNS, CONVERSATIONS, BURST = 1000, 20, 5
LONGEST = 2200


def resident_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def draw(values, budget, path):
    """MiB over turns, and where memory would be if the budget were used up on top of the first turn's."""
    width, height, left, bottom = 720, 240, 50, 30
    top = 1.15 * max(max(values), values[0] + budget)

    def point(turn, value):
        return f"{left + turn * (width - left - 10) / len(values):.1f},{(height - bottom) * (1 - value / top):.1f}"

    line = " ".join(point(turn, value) for turn, value in enumerate(values))
    limit = " ".join(point(turn, values[0] + budget) for turn in (0, len(values)))
    labels = "".join(
        f'<text x="{left - 6}" y="{(height - bottom) * (1 - mib * 2**20 / top) + 4:.0f}" text-anchor="end">{mib}</text>'
        for mib in range(0, int(top / 2**20), 25))
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="#555">'
        f'<rect width="{width}" height="{height}" fill="#fff"/>{labels}<text x="{left}" y="{height - 10}">turns 1 to {len(values)}: resident MiB, '
        f'and the first turn plus the budget (dashed)</text><polyline points="{limit}" fill="none" stroke="#999" stroke-dasharray="4"/>'
        f'<polyline points="{line}" fill="none" stroke="#0a7" stroke-width="1.5"/></svg>\n', encoding="utf-8")


class Conversation:
    def __init__(self, agent, number):
        self.agent = agent
        self.number = number
        self.restarts = 0
        self.begin()

    def begin(self):
        self.restarts += 1
        system = f"Conversation {self.number}, part {self.restarts}. " + "You are careful and brief. " * 60
        self.messages = [{"role": "system", "content": system}, user("What is in the files?")]
        self.stable = 0  # tokens of the last prompt that the next one keeps

    def ask(self, turn):
        """Computed tokens, those expected if the last turn is remembered (none for a new beginning), and all."""
        n = len(self.agent.ids(self.messages))
        if n > LONGEST:
            self.begin()
            n = len(self.agent.ids(self.messages))
        computed = self.agent.prefilled(self.messages, max_tokens=4)
        new = n - self.stable if self.stable else None
        self.stable = n - (TOOL if self.stable else USER)
        self.messages += [call(f"cat {turn}.txt", "I look."), result(f"line {turn} of a file\n" * (turn % 9 + 3))]
        return computed, new, n


@pytest.mark.full
def test_memory_stays_flat(start_server):
    probe = start_server("--ctx", "4096", "--parallel", "1")
    details = json.loads(probe.get("/props"))["details"]
    probe.stop()
    page, state = int(details["page_bytes"]), int(details["state_bytes"])
    # A conversation: its pages, and two snapshots of the newest turn, the question's, the one before, the system message's.
    one = (LONGEST // 64 + 6) * page + 5 * state
    running = (4096 // 64 + 2) * page
    budget = int((4 * one + running) * 64 / 63) + 3 * state + (64 << 10)
    server = start_server("--ctx", "4096", "--parallel", "1", "--cache-ram", str(budget))
    agent = Agent(server)
    talks = [Conversation(agent, i) for i in range(CONVERSATIONS)]
    resident, n_whole = [], 0
    for turn in range(TURNS):
        burst, step = divmod(turn, BURST)
        computed, new, whole = talks[burst % CONVERSATIONS].ask(turn)
        if step > 0 and new is not None:
            assert computed == new, f"turn {turn}"
        n_whole += computed > whole // 2
        if step == BURST - 1 and burst % 10 == 9:
            for last in (burst - 1, burst - 2):
                computed, new, _ = talks[last % CONVERSATIONS].ask(turn)
                assert new is None or computed == new, "the last three conversations are there"
        resident.append(resident_bytes(server))
        cache = json.loads(server.get("/props"))["cache"]
        assert cache["bytes"] <= cache["budget_bytes"] <= budget
    print("resident MiB every 50 turns:", [round(b / 2**20, 1) for b in resident[::50]], "whole prompts read:", n_whole)
    if "ESPALIER_PLOTS" in os.environ:
        draw(resident, budget, Path(os.environ["ESPALIER_PLOTS"]) / "cache-memory.svg")
    assert n_whole >= TURNS / BURST * 0.9, "sixteen others came between"
    assert max(resident[300:]) - max(resident[:300]) < 4 << 20
    assert max(resident) < resident[0] + budget + (4 << 20), "the first turn has touched the scratch of a pass"
    assert server.stop() == 0
