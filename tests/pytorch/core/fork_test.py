"""Several threads fork at once, as loaders that start their workers do, while another makes tensors: nobody waits for ever."""

import unittest

from common import child

PROGRAM = """
import os, threading
import torch_xla._weft
torch.ones(3, device="xla").sum().item()

def forks():
    for _ in range(100):
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

threads = [threading.Thread(target=forks) for _ in range(3)]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    torch.ones(3, device="xla") + 1
for thread in threads:
    thread.join()
print("through")
"""


class Forks(unittest.TestCase):
    def test_threads_fork_while_tensors_are_made(self):
        run = child(PROGRAM)
        self.assertIn("through", run.stdout, run.stderr)


if __name__ == "__main__":
    unittest.main()
