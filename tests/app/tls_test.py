"""TLS with the coordinator: a process without a certificate of the job gets no answer."""
import json
import shutil
import subprocess
import unittest

from harness import Case, LIMIT, TENUTO

NAME = "tenuto-coordinator"


class Certificates(Case):
    def setUp(self):
        super().setUp()
        if shutil.which("openssl") is None:
            self.skipTest("no openssl on this machine")

    def openssl(self, folder, *words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True,
                       timeout=LIMIT)

    def authority(self, name):
        folder = self.folder / name
        folder.mkdir()
        self.openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                     f"/CN={name}", "-keyout", "ca.key", "-out", "ca.pem")
        return folder

    def certificate(self, authority, name, of=NAME):
        """A folder as coordinator.tls wants it, signed by the authority."""
        folder = self.folder / name
        folder.mkdir()
        self.openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={of}",
                     "-keyout", "key.pem", "-out", "cert.csr")
        (folder / "names").write_text(f"subjectAltName=DNS:{of}")
        self.openssl(folder, "x509", "-req", "-days", "2", "-in", "cert.csr", "-CA",
                     str(authority / "ca.pem"), "-CAkey", str(authority / "ca.key"),
                     "-CAcreateserial", "-extfile", "names", "-out", "cert.pem")
        shutil.copy(authority / "ca.pem", folder / "ca.pem")
        return folder

    def status(self, run):
        return subprocess.run([TENUTO, "status", str(run.folder)], text=True, capture_output=True,
                              timeout=LIMIT)

    def test_a_process_without_a_certificate_is_refused(self):
        ours = self.certificate(self.authority("ours"), "host")
        strange = self.certificate(self.authority("theirs"), "stranger")
        run = self.start("--job.steps=5000", f"--coordinator.tls={ours}",
                         "--job.checkpoint_every=0")
        run.wait_for_steps(3)
        asked = self.status(run)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        where = run.folder / "coordinator.json"
        known = json.loads(where.read_text())
        self.assertEqual(known["tls"], str(ours))
        for tls in ("", str(strange)):
            where.write_text(json.dumps({**known, "tls": tls}))
            refused = self.status(run)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("does not answer", refused.stderr)
        where.write_text(json.dumps(known))
        run.wait_for_steps(len(run.metrics()) + 3)
        self.assertEqual(self.status(run).returncode, 0)
        run.process.terminate()
        self.assertEqual(run.finish(), 143, run.errors)

    def test_a_worker_certificate_is_no_coordinators(self):
        authority = self.authority("ours")
        worker = self.certificate(authority, "worker", of="worker-1")
        run = self.start(f"--coordinator.tls={worker}")
        self.assertNotEqual(run.finish(), 0)
        self.assertIn("has a certificate of the same authority", str(self.logs(run)))

    def test_certificate_files_are_checked_first(self):
        for name, text, sentence in (("key.pem", None, "key.pem (coordinator.tls) cannot be read"),
                                     ("cert.pem", "soon", "cert.pem (coordinator.tls) is not PEM")):
            folder = self.folder / f"without-{name}"
            folder.mkdir()
            for file in ("ca.pem", "cert.pem", "key.pem"):
                (folder / file).write_text("-----BEGIN CERTIFICATE-----\n")
            if text is None:
                (folder / name).unlink()
            else:
                (folder / name).write_text(text)
            run = self.start(f"--coordinator.tls={folder}")
            self.assertEqual(run.finish(), 2)
            self.assertIn(sentence, run.errors)

    def test_messages_between_workers_are_encrypted(self):
        ours = self.certificate(self.authority("ours"), "host")
        self.write_job(parallel__pipelines=2, parallel__stages=2, job__steps=20,
                       resilience__numerics="reproducible")
        plain = self.train(name="plain")
        self.assertTrue(plain.output.startswith("the workers send their messages over TCP\n"),
                        plain.output)
        self.job.write_text(self.job.read_text() +
                            '[[fault]]\nkind = "kill"\nworker = "1.0"\nat_step = 5\n')
        run = self.train(f"--coordinator.tls={ours}", "--network.tls=true",
                         "--resilience.restarts=1", name="encrypted")
        self.assertIn("over TCP, encrypted by TLS 1.3\n", run.output)
        self.assertEqual(self.losses(run), self.losses(plain))
        self.assertEqual([event["event"] for event in run.events()].count("death"), 1)


if __name__ == "__main__":
    unittest.main()
