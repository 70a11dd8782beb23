"""Layers move between workers of a live run: no step is lost, the numbers stay the same."""
import random
import re
import unittest

from harness import another_case, long_case
from survive_test import Survival

MOVING = re.compile(r"is proposed: moving ((?:layer \d+ from worker \d+ to worker \d+(?:, )?)+)")
MOVED = re.compile(r"is proposed: moved layer")
ONE = re.compile(r"layer (\d+) from worker (\d+) to worker (\d+)")
PROMISE = re.compile(r"a whole step takes ([0-9.]+) ms instead of ([0-9.]+) ms")
STEPS = 90


class Moves(Survival):
    def setUp(self):
        super().setUp()
        self.write(steps=STEPS)

    def write(self, steps, **more):
        settings = dict(job__steps=steps, job__checkpoint_every=10, job__validate_every=0,
                        job__validate_micros=0, model__kind="gpt", model__layers=8,
                        parallel__stages=3, parallel__pipelines=2, parallel__micros=4,
                        parallel__order="1f1b", network__latency_ms=0.5,
                        device__parameter_bytes=4096, device__forward_ms=[4.0],
                        device__backward_input_ms=[4.0], device__backward_weight_ms=[4.0],
                        resilience__numerics="reproducible", resilience__layers="adapt",
                        resilience__slow_links="adapt")
        self.write_job(**{**settings, **more})

    def slow(self, **more):
        self.add_fault(kind="slow-worker", worker="0.1", speed=0.5, at_step=8, **more)

    def moves(self, run):
        """The moves that were begun, each as a list of (layer, donor, receiver)."""
        begun = [MOVING.search(reason) for reason in self.told(run, "decision")]
        return [[tuple(map(int, one)) for one in ONE.findall(match[1])]
                for match in begun if match]

    def in_log(self, run, sentence, count=1):
        logs = (entry.read_text() for entry in run.folder.glob("worker-*.log"))
        return sum(log.count(sentence) for log in logs) >= count


class Layers(Moves):
    def test_layers_leave_a_slow_worker_and_come_back(self):
        undisturbed = self.train(name="undisturbed")
        self.assertEqual(self.moves(undisturbed), [])
        self.slow(until_step=50)
        run = self.train()
        self.assert_same_bits(run, undisturbed, STEPS)
        away, back = self.moves(run)
        self.assertTrue(all(donor == 1 for _, donor, _ in away), away)
        self.assertEqual([(layer, receiver, donor) for layer, donor, receiver in away], back)
        self.assertEqual({line["epoch"] for line in run.metrics()}, {1})

    def test_the_gain_is_what_was_promised(self):
        self.slow()
        run = self.train()
        reasons = self.told(run, "decision")
        promise = next(PROMISE.search(reason) for reason in reasons if MOVING.search(reason))
        after, before = map(float, promise.groups())
        self.assertLess(after, 0.85 * before)
        periods = [line["period_ms"] for line in run.metrics()[40:] if line.get("period_ms")]
        if run.metrics()[-1]["lag_valid"]:
            self.assertLess(abs(periods[len(periods) // 2] - after), 0.05 * after, periods)

    def test_two_workers_change_places_around_a_slow_link(self):
        """In one pipeline, no boundary has the slow link after that; nobody has to change back."""
        self.write(steps=STEPS, parallel__stages=4, parallel__pipelines=1)
        undisturbed = self.train(name="undisturbed")
        self.add_fault(kind="slow-link", link=1, latency_ms=40, at_step=8, until_step=70)
        run = self.train()
        self.assert_same_bits(run, undisturbed, STEPS)
        moves = self.moves(run)
        self.assertEqual(len(moves), 1, self.told(run, "decision"))
        pairs = {(donor, receiver) for _, donor, receiver in moves[0]}
        self.assertEqual(len(pairs), 2, moves)
        self.assertEqual({(receiver, donor) for donor, receiver in pairs}, pairs)
        compared = [event["alternatives"] for event in run.events()
                    if event["event"] == "decision" and "each other's place" in event["reason"]]
        self.assertTrue(any(one["chosen"] and "each other's place" in one["name"]
                            for one in compared[0]), compared)

    def test_layers_leave_the_peer_of_a_lost_worker(self):
        undisturbed = self.train(name="undisturbed")
        run = self.start()
        run.wait_for_steps(5)
        self.kill(run, 1)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_same_bits(run, undisturbed, STEPS)
        moves = self.moves(run)
        self.assertTrue(moves, self.told(run, "decision"))
        self.assertTrue(all(donor == 4 for _, donor, _ in moves[0]), moves)

    @another_case
    def test_observe_only_tells(self):
        self.write(steps=40, resilience__layers="observe")
        self.slow()
        run = self.train()
        self.assertEqual(self.moves(run), [])
        self.assertIn('resilience.layers is "observe", so no layer moves', run.output)
        # What may be done is done: another order of ops.
        self.assertEqual([line["plan"] for line in run.metrics()][-1], "auto")

    @another_case
    def test_what_does_not_go_with_moves_is_refused(self):
        for flag, sentence in (
                ("--resilience.slow_links=observe", 'needs resilience.slow_links = "adapt"'),
                ("--resilience.copies=1", "needs resilience.copies = 0"),
                ("--parallel.stages=1", "needs parallel.stages of at least 2"),
                ("--parallel.order=zb-v", "workers that hold one stage each")):
            run = self.train(flag, expected=3 if "order" in flag else 2)
            self.assertIn(sentence, run.errors)
            self.assertEqual(run.errors.count("\n"), 1, run.errors)


class Killed(Moves):
    """Donor, receiver and others are killed at every part of a move."""
    PARTS = {"begun": lambda self, run: self.moves(run),
             "receiving": lambda self, run: self.in_log(run, "holds stages"),
             "received": lambda self, run: self.in_log(run, "has received the whole state"),
             "moved": lambda self, run: any(MOVED.search(reason)
                                            for reason in self.told(run, "decision")),
             "later": lambda self, run: self.in_log(run, "holds stages", 4)}

    def check(self, kills):
        self.slow()
        undisturbed = self.train(name="undisturbed")
        chance = random.Random(5)
        for number, (part, whom) in enumerate(kills):
            with self.subTest(part=part, whom=whom):
                run = self.start(f"--job.steps={STEPS}", name=f"kill-{number}")
                run.wait_for_steps(3)
                run.wait_until(lambda: self.moves(run) and self.PARTS[part](self, run)
                               or len(run.metrics()) >= STEPS - 5, part)
                donor, receiver = self.moves(run)[0][0][1:]
                victim = {"donor": donor, "receiver": receiver,
                          "peer": donor + 3, "any": chance.randrange(6)}[whom]
                self.kill(run, victim)
                self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
                self.assert_same_bits(run, undisturbed, STEPS)

    def test_a_receiver_while_it_receives(self):
        self.check([("receiving", "receiver")])

    def test_a_receiver_that_has_moved_layers(self):
        self.check([("moved", "receiver")])

    def test_a_donor_when_the_move_has_begun(self):
        self.check([("begun", "donor")])

    def test_a_donor_when_the_receiver_has_the_state(self):
        self.check([("received", "donor")])

    @long_case
    def test_forty(self):
        self.check([(part, whom) for part in self.PARTS
                    for whom in ("donor", "receiver", "donor", "receiver", "donor", "receiver",
                                 "peer", "any")])


class RealModel(Moves):
    """A GPT on the CPU. Which workers give layers follows from measured times, so a very busy
    machine may break these tests. In truth_test, layers move without measured times."""
    STEPS = 36

    def setUp(self):
        super().setUp()
        self.need_torch()
        self.write_job(job__steps=self.STEPS, job__checkpoint_every=self.STEPS,
                       job__validate_every=0, job__validate_micros=0, device__kind="cpu",
                       data__paths=[self.write_text()], model__kind="gpt", model__layers=6,
                       model__width=64, model__heads=4, model__sequence=64, model__dropout=0.1,
                       parallel__micros=4, parallel__micro_rows=2, parallel__order="1f1b",
                       resilience__numerics="reproducible", resilience__layers="adapt",
                       resilience__slow_links="adapt")
        self.undisturbed = self.train("--resilience.layers=observe", name="undisturbed")
        self.assertEqual(self.moves(self.undisturbed), [])
        self.add_fault(kind="slow-worker", worker="0.1", speed=0.15, at_step=4)

    def given(self, run):
        """The workers that give layers away, in the order in which they begin."""
        return [donor for move in self.moves(run) for _, donor, _ in move]

    @long_case
    def test_layers_leave_a_slow_worker(self):
        run = self.train()
        self.assertIn(1, self.given(run), self.told(run, "decision"))
        self.assertTrue(self.in_log(run, "has received the whole state"))
        self.assert_same_bits(run, self.undisturbed, self.STEPS)

    @long_case
    def test_a_donor_dies(self):
        run = self.start()
        run.wait_for_steps(3)
        run.wait_until(lambda: 1 in self.given(run), "the slow worker gives layers")
        self.kill(run, 1)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_same_bits(run, self.undisturbed, self.STEPS)


if __name__ == "__main__":
    unittest.main()
