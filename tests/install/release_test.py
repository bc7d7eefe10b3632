"""scripts/release on this build, or what it made in the folder WEFT_RELEASE: the same bytes twice; the archive works where it is
unpacked, with the README's program, the examples and docs/install.md (consumers by pkg-config, CMake and Meson), and is gone with its
folder; the Debian packages go into an empty root, run there, and leave nothing."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from installation import BUILD, SOURCE, VERSION, follow_the_guide, run

NAME = f"weft-{VERSION}-linux-x86_64"
EXAMPLES = ("train_fashion_mnist", "linear_fit", "spirals", "characters", "inference_server")


def digests(folder):
    with open(os.path.join(folder, "SHA256SUMS"), encoding="utf-8") as handle:
        return dict(reversed(line.split()) for line in handle)


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix="weft-release-test.")
        cls.out = os.environ.get("WEFT_RELEASE")
        if cls.out is None:
            cls.out = os.path.join(cls.work, "out")
            cls.package(cls.out)
        cls.root = os.path.join(cls.work, "elsewhere")
        os.makedirs(cls.root)
        run("tar", "-C", cls.root, "--zstd", "-xf", os.path.join(cls.out, NAME + ".tar.zst"))
        cls.prefix = os.path.join(cls.root, NAME)
        cls.env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        cls.env.update(PKG_CONFIG_PATH=os.path.join(cls.prefix, "lib", "pkgconfig"), XDG_CACHE_HOME=cls.work)

    @staticmethod
    def package(out):
        run(os.path.join(SOURCE, "scripts", "release"), "--build", BUILD, "--out", out, env=dict(os.environ, SOURCE_DATE_EPOCH="1700000000"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)

    @unittest.skipIf("WEFT_RELEASE" in os.environ, "scripts/test --only packages compares two builds")
    def test_packaging_twice_gives_the_same_bytes(self):
        again = os.path.join(self.work, "again")
        self.package(again)
        self.assertEqual(digests(self.out), digests(again))
        self.assertEqual(5, len(digests(self.out)))
        run("sha256sum", "-c", "SHA256SUMS", cwd=again)

    def test_the_archive_holds_everything_below_one_folder(self):
        names = run("tar", "--zstd", "-tf", os.path.join(self.out, NAME + ".tar.zst")).splitlines()
        self.assertEqual({NAME}, {name.split("/")[0] for name in names})
        for name in ("lib/libweft.so.1", "lib/libweft.so", "bin/weft", "include/weft/weft.h", "lib/pkgconfig/weft.pc",
                     "lib/cmake/weft/weftConfig.cmake", "share/doc/weft/THIRD_PARTY_NOTICES", "share/doc/weft/LICENSE",
                     "share/doc/weft/weft.spdx.json", "share/doc/weft/docs/install.md", "share/man/man1/weft.1", "share/weft/weft_api.json"):
            self.assertIn(f"{NAME}/{name}", names)
        debug = run("tar", "--zstd", "-tf", os.path.join(self.out, NAME + "-debug.tar.zst")).splitlines()
        self.assertIn(f"{NAME}/lib/.debug/libweft.so.1.debug", debug)

    def test_the_readme_s_program_and_the_example_build_and_run_where_it_was_unpacked(self):
        with open(os.path.join(self.prefix, "share", "doc", "weft", "README.md"), encoding="utf-8") as handle:
            text = handle.read()
        work = os.path.join(self.work, "programs")
        os.makedirs(work)
        with open(os.path.join(work, "example.c"), "w", encoding="utf-8") as out:
            out.write(next(b for b in re.findall(r"^```c\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if "int main(" in b))
        line = re.search(r"^cc example\.c .*$", text, re.MULTILINE).group(0)
        self.assertEqual("w = 3.000", run("bash", "-c", line + " && ./example", cwd=work, env=self.env).strip())
        for name in EXAMPLES:
            source = os.path.join(self.prefix, "share", "doc", "weft", "examples", "c", name + ".c")
            run("bash", "-c", f"cc -O1 {source} $(pkg-config --cflags --libs weft) -Wl,-rpath,$(pkg-config --variable=libdir weft) -lm -lz -lpthread -o {name}",
                cwd=work, env=self.env)
            self.assertIn("usage", run(os.path.join(work, name), "--help", env=self.env))

    @unittest.skipIf(shutil.which("meson") is None, "there is no meson; scripts/install-deps installs it")
    def test_the_guide_works_with_the_archive_and_its_folder_is_all_there_is(self):
        work = os.path.join(self.work, "guide")
        os.makedirs(work)
        archive = os.path.join(self.out, NAME + ".tar.zst")
        follow_the_guide(work, f'tar --zstd -xf {archive}; mv {NAME} "$PREFIX"', 'rm -r "$PREFIX"')

    def test_the_debian_packages_go_into_an_empty_root_run_there_and_leave_nothing(self):
        root = os.path.join(self.work, "root")
        os.makedirs(root)
        for package, file in (("libweft1", "usr/lib/libweft.so.1"), ("libweft-dev", "usr/include/weft/weft.h"), ("weft-tools", "usr/bin/weft")):
            deb = os.path.join(self.out, f"{package}_{VERSION}_amd64.deb")
            self.assertEqual(package, run("dpkg-deb", "-f", deb, "Package").strip())
            self.assertIn("./" + file, run("dpkg-deb", "-c", deb))
            run("dpkg-deb", "-x", deb, root)
            self.assertTrue(os.path.exists(os.path.join(root, "usr", "share", "doc", package, "copyright")))
        self.assertTrue(os.path.exists(os.path.join(root, "usr", "include", "libweft.hpp")))
        self.assertIn(VERSION, run(os.path.join(root, "usr", "bin", "weft"), "version", env=self.env))
        if os.geteuid() != 0:
            self.skipTest("dpkg --root wants to be root")
        # dpkg's own bookkeeping in an empty root: nothing but it is left after removing.
        target = os.path.join(self.work, "dpkg")
        os.makedirs(os.path.join(target, "var", "lib", "dpkg", "updates"))
        os.makedirs(os.path.join(target, "var", "lib", "dpkg", "info"))
        for name in ("status", "available"):
            with open(os.path.join(target, "var", "lib", "dpkg", name), "w", encoding="utf-8"):
                pass
        debs = [os.path.join(self.out, f"{package}_{VERSION}_amd64.deb") for package in ("libweft1", "libweft-dev", "weft-tools")]
        dpkg = ["dpkg", "--root=" + target, "--force-depends", "--force-not-root", "--force-script-chrootless"]
        run(*dpkg, "--install", *debs, env=dict(self.env, PATH=os.environ["PATH"] + ":/usr/sbin:/sbin"))
        self.assertIn(VERSION, run(os.path.join(target, "usr", "bin", "weft"), "version", env=self.env))
        run(*dpkg, "--purge", "weft-tools", "libweft-dev", "libweft1", env=dict(self.env, PATH=os.environ["PATH"] + ":/usr/sbin:/sbin"))
        self.assertEqual([], [os.path.join(r, n) for r, _, names in os.walk(target) for n in names if "/var/" not in os.path.join(r, n)])

    def test_what_is_no_build_is_said(self):
        done = subprocess.run([os.path.join(SOURCE, "scripts", "release"), "--build", self.work, "--out", os.path.join(self.work, "x")],
                              capture_output=True, text=True, env=dict(os.environ, SOURCE_DATE_EPOCH="1"))
        self.assertEqual(1, done.returncode)
        self.assertIn("is no build folder", done.stderr)


if __name__ == "__main__":
    if os.environ.get("WEFT_SYSTEM_DEPS") == "ON":
        print("SKIPPED: with the system's libraries there is nothing to ship")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
