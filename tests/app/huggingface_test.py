"""Models of Hugging Face's transformers: how they are cut, trained, and written for them."""
import json
import os
import pathlib
import subprocess
import unittest

from harness import LIMIT, another_case, long_case
from package_test import EXAMPLES, PACKAGE, PYTHON, Launch

CHECK = pathlib.Path(__file__).resolve().parent / "huggingface_check.py"
STEPS = 6


def has_transformers():
    look = "import importlib.util as util, sys; sys.exit(util.find_spec('transformers') is None)"
    return subprocess.run([PYTHON, "-c", look], check=False, timeout=LIMIT).returncode == 0


def python(*words):
    """Runs a script, and returns what it prints."""
    ended = subprocess.run(
        [PYTHON, *map(str, words)], capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, "PYTHONPATH": PACKAGE})
    if ended.returncode != 0:
        raise AssertionError(f"{words} ended with {ended.returncode}: {ended.stderr}")
    return ended.stdout


def check(*words):
    return json.loads(python(CHECK, *words))


class HuggingFace(Launch):
    # Plain torch has the same: see huggingface_check.py.
    OVERRIDES = ("--optimizer.clip=0", "--optimizer.schedule=constant",
                 "--optimizer.warm_up_steps=0", f"--job.steps={STEPS}")

    def setUp(self):
        if not has_transformers():
            self.skipTest("no transformers: this Python has torch alone")
        super().setUp()

    def test_a_cut_model_is_the_uncut_one(self):
        found = check("cut")
        self.assertEqual({case: wrong for case, wrong in found["cases"].items() if wrong}, {})
        self.assertEqual(len(found["cases"]), 24)
        for case in found["repeats"].values():
            self.assertEqual(case, {"wrong": [], "shares": True})
        self.assertIn("OPTForCausalLM cannot be cut: its configuration has no", found["opt"])
        self.assertIn("GraniteForCausalLM cannot be cut: its forward changes the hidden states "
                      "outside of the modules embed_tokens, layers, norm", found["granite"])

    def trains(self, kind, names):
        """Trains the example over 2 x 2, and compares it with plain torch."""
        script = EXAMPLES / "huggingface.py"
        run = self.launch(script, "--model", kind, name=kind,
                          flags=("-n", "4", *self.OVERRIDES))
        losses, plain = self.losses(run), check("plain", kind, STEPS)
        self.assertEqual(sorted(losses), list(range(STEPS)))
        for step, loss in enumerate(plain["losses"]):
            self.assertAlmostEqual(losses[step], loss, delta=2e-5 * loss)
        self.assertLess(plain["after"], plain["losses"][0])
        folder = self.folder / "written"
        told = python(script, "--model", kind, "--export", run.folder, folder)
        self.assertIn(f"has the model after {STEPS} steps", told)
        self.assertTrue((folder / "model.safetensors").is_file())
        read = check("read", folder)
        self.assertAlmostEqual(read["loss"], plain["after"], delta=2e-5 * plain["after"])
        self.assertAlmostEqual(read["again"], read["loss"], delta=1e-6)
        for name in names:
            self.assertIn(name, read["names"])
        return run

    def test_gpt2_with_its_tied_weight(self):
        self.trains("gpt2", ("transformer.wte.weight", "transformer.h.3.attn.c_attn.weight"))

    @another_case
    @long_case
    def test_gpt2_lives_through_trouble(self):
        self.check_trouble(EXAMPLES / "huggingface.py", "--model", "gpt2")

    @another_case
    @long_case
    def test_llama_lives_through_trouble(self):
        self.check_trouble(EXAMPLES / "huggingface.py", "--model", "llama")

    @another_case
    @long_case
    def test_gpt2_adapts_to_a_slow_link(self):
        self.check_slow_link(EXAMPLES / "huggingface.py", "--model", "gpt2")

    @another_case
    @long_case
    def test_llama_adapts_to_a_slow_link(self):
        self.check_slow_link(EXAMPLES / "huggingface.py", "--model", "llama")

    def test_llama(self):
        run = self.trains("llama", ("model.layers.0.self_attn.q_proj.weight", "lm_head.weight"))
        written = self.folder / "other"
        with self.assertRaisesRegex(AssertionError, "is of another model: transformer.wte.weight "
                                                    "is missing, expected shape"):
            python(EXAMPLES / "huggingface.py", "--model", "gpt2", "--export", run.folder, written)
        with self.assertRaisesRegex(AssertionError, "holds no checkpoint: expected a folder"):
            python(EXAMPLES / "huggingface.py", "--export", self.folder, written)


if __name__ == "__main__":
    unittest.main()
