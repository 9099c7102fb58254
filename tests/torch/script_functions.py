"""Functions written by hand for torch.jit.script: loops, branches and breaks, as people write them."""

from typing import List, Optional, Tuple  # noqa: UP035 - torch.jit.script reads these

import torch


def counted(x: torch.Tensor):
    for i in range(5):
        x = torch.sin(x) + i
    return x


def counted_from_argument(x: torch.Tensor, n: int):
    for i in range(n):
        x = x * 0.5 + i
    return x


def while_on_data(x: torch.Tensor):
    while bool(x.abs().max() > 0.5):
        x = x * 0.7
    return x


def while_counts(x: torch.Tensor):
    n = 0
    while bool(x.sum() < 50.0):
        x = x * 1.5 + 1.0
        n += 1
    return x, n


def breaks(x: torch.Tensor):
    for _i in range(20):
        x = x * 1.3
        if bool(x.max() > 10.0):
            break
    return x


def continues(x: torch.Tensor):
    total = torch.zeros_like(x)
    for i in range(6):
        if i % 2 == 0:
            continue
        total = total + x * i
    return total


def branch_on_data(x: torch.Tensor):
    if bool(x.sum() > 0):
        y = torch.sin(x)
    else:
        y = torch.cos(x) * 2.0
    return y


def branch_on_shape(x: torch.Tensor):
    if x.dim() == 1:
        return x.sum()
    return x.sum(1)


def nested_branches(x: torch.Tensor):
    s = x.sum()
    if bool(s > 1.0):
        if bool(s > 5.0):
            y = x * 3.0
        else:
            y = x * 2.0
    elif bool(s < -1.0):
        y = -x
    else:
        y = x + 1.0
    return y


def loop_in_loop(x: torch.Tensor):
    for i in range(3):
        for j in range(i + 1):
            x = torch.tanh(x) + 0.1 * j
    return x


def early_return(x: torch.Tensor):
    for _i in range(10):
        x = x + 1.0
        if bool(x.mean() > 4.0):
            return x * 2.0
    return x


def collatz(n: torch.Tensor):
    steps = 0
    while bool(n != 1):
        if bool(n % 2 == 0):
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


def collects(x: torch.Tensor):
    out: List[torch.Tensor] = []  # noqa: UP006
    for i in range(4):
        x = torch.cos(x) * (i + 1)
        out.append(x)
    return torch.stack(out)


def collects_two(x: torch.Tensor):
    a: List[torch.Tensor] = []  # noqa: UP006
    b: List[torch.Tensor] = []  # noqa: UP006
    for _i in range(3):
        x = x * 1.1
        a.append(x.sum())
        b.append(x)
        a.append(x.mean())
    return torch.stack(a), torch.cat(b)


def recurrent(xs: torch.Tensor, w: torch.Tensor):
    h = torch.zeros(w.size(0), dtype=xs.dtype)
    for t in range(xs.size(0)):
        h = torch.tanh(torch.mv(w, h) + xs[t])
    return h


def over_rows(xs: torch.Tensor):
    total = torch.zeros(xs.size(1), dtype=xs.dtype)
    for row in xs.unbind(0):
        total = total * 0.5 + row
    return total


def newton(a: torch.Tensor):
    x = torch.ones_like(a)
    for _ in range(30):
        x = 0.5 * (x + a / x)
    return x


def power_iteration(m: torch.Tensor):
    v = torch.ones(m.size(0), dtype=m.dtype)
    for _ in range(12):
        v = torch.mv(m, v)
        v = v / v.norm()
    return v


def integers(x: torch.Tensor):
    y = x * 3 - 7
    return y // 2, y % 5, (y & 3) | 8, y.float() / 2


def mixed_types(x: torch.Tensor, i: torch.Tensor):
    return x * i, i + 0.5, i > x, torch.where(i > 0, x, x * 2)


def optional(x: torch.Tensor, bias: Optional[torch.Tensor] = None):  # noqa: UP045
    if bias is not None:
        x = x + bias
    return x * 2.0


def tuples(x: torch.Tensor):
    pair: Tuple[torch.Tensor, int] = (x, 1)  # noqa: UP006
    for i in range(3):
        a, n = pair
        pair = (a * 2.0, n + i)
    return pair[0], pair[1]


def slices(x: torch.Tensor):
    return x[1:, ::2], x[-1], x[:, 1:-1].sum(0), x.t()[0]


def softmax_attention(q: torch.Tensor, k: torch.Tensor):
    scores = torch.matmul(q, k.transpose(0, 1)) / 2.0
    return torch.softmax(scores, dim=-1).max(dim=1)[0]


def sorted_top(x: torch.Tensor):
    values, order = torch.sort(x, descending=True)
    top, where = torch.topk(x, 2)
    return values, order, top, where


def damped(x: torch.Tensor, rate: float):
    v = torch.zeros_like(x)
    i = 0
    while i < 8 and bool(x.abs().max() > 1e-3):
        v = v * 0.5 - rate * x
        x = x + v
        i += 1
    return x


def _rand(*shape):
    return torch.linspace(-1.0, 1.0, int(torch.tensor(shape).prod()), dtype=torch.float64).reshape(shape)


LONG = torch.tensor([5, -3, 8, 0])
CASES = {  # function: argument lists
    counted: [(_rand(3),)],
    counted_from_argument: [(_rand(3), 4), (_rand(3), 0)],
    while_on_data: [(_rand(3) * 4,), (_rand(3) * 0.1,)],
    while_counts: [(_rand(3),), (_rand(3) + 30,)],
    breaks: [(_rand(3) + 2,), (_rand(3) * 0.01,)],
    continues: [(_rand(3),)],
    branch_on_data: [(_rand(3) + 1,), (_rand(3) - 1,)],
    branch_on_shape: [(_rand(3),), (_rand(2, 3),)],
    nested_branches: [(_rand(3) + 3,), (_rand(3) + 0.5,), (_rand(3) - 1,), (_rand(3),)],
    loop_in_loop: [(_rand(3),)],
    early_return: [(_rand(3),), (_rand(3) - 100,)],
    collatz: [(torch.tensor(27),), (torch.tensor(1),)],
    collects: [(_rand(3),)],
    collects_two: [(_rand(3),)],
    recurrent: [(_rand(5, 3), _rand(3, 3))],
    over_rows: [(_rand(4, 3),)],
    newton: [(_rand(3) + 2,)],
    power_iteration: [(_rand(3, 3) + 2,)],
    integers: [(LONG,), (LONG.int(),)],
    mixed_types: [(_rand(4), LONG), (_rand(4).float(), LONG)],
    optional: [(_rand(3), None), (_rand(3), _rand(3))],
    tuples: [(_rand(3),)],
    slices: [(_rand(4, 5),)],
    softmax_attention: [(_rand(3, 4), _rand(5, 4))],
    sorted_top: [(torch.tensor([3.0, 1.0, 2.0, 5.0]),)],
    damped: [(_rand(3), 0.3)],
}
