"""A split backward of a script's modules has the bits of the fused one, whatever they are."""
from harness import another_case, long_case
from huggingface_test import has_transformers
from package_test import HERE, Launch


class Split(Launch):
    def check(self, model, **more):
        """Losses and parameters after some steps, with the weight gradients of each op later."""
        found = []
        for name, split in (("fused", False), ("split", True)):
            self.write_module_job(parallel__stages=2, parallel__pipelines=1, parallel__micros=4,
                                  parallel__order="1f1b", parallel__split_backward=split, **more)
            run = self.launch(HERE / "package_split.py", model, self.job, name=name)
            losses = self.losses(run)
            self.assertEqual(len(losses), 6)
            self.assertTrue(all(line["gradient_norm"] > 0.01 for line in run.metrics()))
            files = sorted((run.folder / "checkpoint-6").glob("*.safetensors"))
            self.assertEqual(len(files), 2)
            found.append((losses, [file.read_bytes() for file in files]))
        self.assertEqual(found[0][0], found[1][0])
        self.assertTrue(found[0][1] == found[1][1], "the parameters have other bits")

    def test_layers_checkpoints_and_shared_weights(self):
        self.check("layers")

    @another_case
    def test_layers_checkpoints_and_shared_weights_in_bf16(self):
        self.check("layers", device__precision="bf16")

    @another_case
    @long_case
    def test_compiled_modules(self):
        self.check("compiled")

    @another_case
    def test_gpt2(self):
        if not has_transformers():
            self.skipTest("no transformers: this Python has torch alone")
        self.check("gpt2")

    @another_case
    def test_llama(self):
        if not has_transformers():
            self.skipTest("no transformers: this Python has torch alone")
        self.check("llama")
