"""Views, in-place operations and metadata: every case equal to torch CPU's bit for bit."""

import unittest

from common import DEVICE, core, same
import torch

VIEWS = {
    "transpose": lambda x: x.transpose(0, 1),
    "t": lambda x: x[0].t(),
    "permute": lambda x: x.permute(2, 0, 1),
    "select": lambda x: x.select(1, 2),
    "slice": lambda x: x[1:, 1:3],
    "slice_step": lambda x: x[:, ::2],
    "slice_odd": lambda x: x[..., 1::2],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "diagonal_off": lambda x: x.diagonal(1, 0, 1),
    "expand": lambda x: x[:, :1].expand(2, 4, 4),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "view": lambda x: x.view(4, 8),
    "view_flat": lambda x: x.view(-1),
    "view_split": lambda x: x.view(2, 2, 2, 4)[:, 1, :, 1:3],
    "view_join": lambda x: x.view(8, 4)[2:6],
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(2, 2)[1],
    "unbind": lambda x: x.unbind(0)[1],
    "unfold": lambda x: x.unfold(1, 2, 2),
    "as_strided": lambda x: x.as_strided((3, 3), (1, 4), 2),
    "movedim": lambda x: x.movedim(0, 2),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "run": lambda x: x[1].reshape(-1)[3:9],
    "mT": lambda x: x.mT,
    "one_dimension": lambda x: x[0, 1],
    "element": lambda x: x[1, 2, 3],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "chain": lambda x: x.permute(2, 0, 1)[1:3].transpose(0, 2)[1:],
    "chain_step": lambda x: x.view(4, 8).t()[2:6, ::2].t(),
    "chain_select": lambda x: x[:, ::2].permute(2, 1, 0)[1:, 0],
    "hsplit": lambda x: x.hsplit(2)[1],
    "vsplit": lambda x: x[0].vsplit(2)[0],
    "dsplit": lambda x: x.dsplit(2)[1],
    "tensor_split": lambda x: x.tensor_split(3, 2)[1],
    "other_dtype": lambda x: x.view(torch.int32),
    "view_as": lambda x: x.view_as(x),
    "expand_as": lambda x: x[:, :, :1].expand_as(x),
    "empty": lambda x: x[:, 2:2],
    "empty_view": lambda x: x[:0].view(0, 2, 8),
    "new_axis": lambda x: x[:, None, 1:, ::3],
}

WRITES = {
    "fill": lambda v: v.fill_(7),
    "add": lambda v: v.add_(1),
    "mul": lambda v: v.mul_(3),
    "zero": lambda v: v.zero_(),
    "copy": lambda v: v.copy_(torch.arange(v.numel(), dtype=v.dtype).view(v.shape).to(v.device)),
    "set": lambda v: v.__setitem__(Ellipsis, 5),
    "self": lambda v: v.add_(v.clone()),
}

_MANY = ("split", "chunk", "unbind", "hsplit", "vsplit", "dsplit", "tensor_split")  # torch refuses in-place on these


def outcome(function, *args):
    try:
        return function(*args), None
    except RuntimeError as error:
        return None, error


class Views(unittest.TestCase):
    base = torch.arange(32.0).view(2, 4, 4)

    def pair(self):
        return self.base.clone(), self.base.to(DEVICE)

    def test_read(self):
        for name, view in VIEWS.items():
            with self.subTest(name):
                x, y = self.pair()
                same(self, view(x), view(y))
                self.assertEqual((view(x).stride(), view(x).storage_offset()), (view(y).stride(), view(y).storage_offset()))
                same(self, view(x) * 2, view(y) * 2)
                same(self, view(x).contiguous(), view(y).contiguous())

    def test_write_through(self):
        for name, view in VIEWS.items():
            for how, write in WRITES.items():
                with self.subTest(name, how=how):
                    x, y = self.pair()
                    _, expected = outcome(lambda: write(view(x)))
                    _, actual = outcome(lambda: write(view(y)))
                    self.assertEqual(expected is None, actual is None, f"{expected} | {actual}")
                    if expected is None:
                        same(self, x, y)

    def test_gradients(self):
        for name, view in VIEWS.items():
            if name in ("other_dtype", "detach", "data"):
                continue
            with self.subTest(name):
                leaves = [t.requires_grad_() for t in self.pair()]
                for leaf in leaves:
                    (view(leaf) * 2).pow(2).sum().backward()
                same(self, leaves[0].grad, leaves[1].grad)

    def test_gradients_of_writes(self):
        for name, view in VIEWS.items():
            if name in ("other_dtype", "detach", "data", "expand", "expand_as") + _MANY:
                continue
            with self.subTest(name):
                leaves = [t.requires_grad_() for t in self.pair()]
                for leaf in leaves:
                    product = leaf * 1
                    view(product).mul_(2)
                    (product * product).sum().backward()
                same(self, leaves[0].grad, leaves[1].grad)

    def test_aliases_see_writes(self):
        x = self.base.to(DEVICE)
        row, whole = x[1], x.view(-1)
        before = x * 1
        row.add_(100)
        core.sync()
        whole[0] = -1
        self.assertEqual(whole[16].item(), 116)
        self.assertEqual(x[0, 0, 0].item(), -1)
        self.assertEqual(before[1, 0, 0].item(), 16)

    def test_many_views_of_one_loop(self):
        x, y = torch.zeros(5, 6), torch.zeros(5, 6, device=DEVICE)
        for t in (x, y):
            for i in range(5):
                t[i, i:] = i + 1
                t[:, i] += t[i].sum()
        same(self, x, y)

    def test_complex_parts(self):
        z = torch.complex(torch.arange(6.0), torch.ones(6)).view(2, 3)
        y = z.to(DEVICE)
        same(self, torch.view_as_real(z), torch.view_as_real(y))
        z.real.mul_(2)
        y.real.mul_(2)
        z.imag[0] = 7
        y.imag[0] = 7
        same(self, z, y)
        same(self, z.conj() @ z.t(), y.conj() @ y.t())
        same(self, z.conj().imag.clone(), y.conj().imag.clone())


class Metadata(unittest.TestCase):
    def setUp(self):
        self.x = torch.arange(32.0).view(2, 4, 4)
        self.y = self.x.to(DEVICE)

    def test_in_place_shapes(self):
        for name, args in {
            "squeeze_": (),
            "unsqueeze_": (1,),
            "transpose_": (0, 1),
            "t_": None,
            "swapaxes_": (1, 2),
            "as_strided_": ((2, 3), (1, 2), 4),
        }.items():
            x, y = self.x.clone(), self.y.clone()
            if args is None:
                x, y, args = x[0], y[0], ()
            getattr(x, name)(*args)
            getattr(y, name)(*args)
            same(self, x, y, name)
            self.assertEqual(x.stride(), y.stride())

    def test_resize(self):
        y = self.y.clone()
        y.resize_(3, 4)
        same(self, self.x.view(-1)[:12].view(3, 4), y)
        y = self.y.clone()
        y.resize_(5, 4, 4)
        same(self, self.x, y[:2])

    def test_out(self):
        out = torch.empty(0, device=DEVICE)
        self.assertIs(torch.mul(self.y, 2, out=out), out)
        same(self, self.x * 2, out)
        out = torch.empty(4, 2, 4, device=DEVICE).transpose(0, 1)
        torch.add(self.y, self.y, out=out)
        same(self, self.x * 2, out)

    def test_data(self):
        y = self.y.clone()
        y.data = torch.ones(3, device=DEVICE)
        same(self, torch.ones(3), y)

    def test_version_counter(self):
        before = self.y._version
        self.y.add_(1)
        self.assertEqual(self.y._version, before + 1)
        leaf = torch.ones(3, device=DEVICE, requires_grad=True)
        total = (leaf * leaf).sum()
        with torch.no_grad():
            leaf.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            total.backward()

    def test_channels_last(self):
        x, y = (torch.ones(2, 3, 4, 5, device=d).to(memory_format=torch.channels_last) for d in ("cpu", DEVICE))
        self.assertEqual(x.stride(), y.stride())
        same(self, x, y)
        self.assertEqual(torch.empty_like(x).stride(), torch.empty_like(y).stride())

    def test_dtype_of_tensor(self):
        self.assertIs(type(self.y), torch.Tensor)
        self.assertTrue(self.y.is_xla)
        self.assertFalse(self.x.is_xla)
        self.assertEqual(str(self.y.device), "xla:0")
        self.assertEqual(self.y.untyped_storage().nbytes(), self.x.untyped_storage().nbytes())


if __name__ == "__main__":
    unittest.main()
