"""Every lock of src and serialization is one that clang's -Wthread-safety follows, and says what it guards."""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from sources import tree  # noqa: E402
PLAIN = re.compile(r"\bstd::(recursive_|shared_|timed_)*mutex\b|\bstd::condition_variable")
LOCK = re.compile(r"^\s*(?:mutable |static |constinit )*(?:weft::|absl::)?Mutex (\w+);(.*)$", re.MULTILINE)
# Who may name std::mutex: the wrapper itself.
MAY = ("src/runtime/mutex.h",)


def unguarding(files):
    """Locks that no member, function or global of their file names as its guard."""
    bad = []
    for path, text in sorted(files.items()):
        for name, rest in LOCK.findall(text):
            if not re.search(r"ABSL_\w+\((?:[^()]*[^\w()])?" + name + r"\)", text) and "//" not in rest:
                bad.append(f"{path}: nothing is ABSL_GUARDED_BY({name}), and no comment beside it says what it is for")
    return bad


def unfollowed(files):
    return [f"{path}:{number}: {line.strip()}" for path, text in sorted(files.items()) if not path.startswith(MAY)
            for number, line in enumerate(text.splitlines(), 1) if PLAIN.search(line.split("//")[0])]


class Locks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = tree(["src", "serialization"], (".h", ".cc"))

    def test_locks_are_of_the_kind_that_is_checked(self):
        self.assertEqual([], unfollowed(self.files))

    def test_locks_say_what_they_guard(self):
        self.assertGreater(sum(len(LOCK.findall(text)) for text in self.files.values()), 10)
        self.assertEqual([], unguarding(self.files))

    def test_the_check_itself_can_fail(self):
        self.assertTrue(unfollowed({"src/ir/a.h": "  mutable std::mutex mutex_;\n"}))
        self.assertTrue(unguarding({"src/ir/a.h": "  Mutex mutex_;\n  int a = 0;\n"}))
        self.assertFalse(unguarding({"src/ir/a.h": "  Mutex mutex_;\n  int a ABSL_GUARDED_BY(mutex_) = 0;\n"}))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
