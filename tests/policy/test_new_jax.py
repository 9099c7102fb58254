"""A JAX that has moved a private name: the failure is in lowering/jax_api.py alone and says which versions are supported."""

import subprocess
import sys
import types

import jax
import pytest

from quabla_jax._versions import SUPPORTED, unsupported
from quabla_jax.lowering import jax_api

MOVED = [
    "import jax._src.pjit as m; del m.jit_p",
    "import jax._src.core as m; del m.eval_jaxpr",
    "import jax._src.interpreters.partial_eval, sys; sys.modules['jax._src.interpreters.partial_eval'] = None; "
    "import jax._src.interpreters as p; del p.partial_eval",
    "import jax._src.lax.control_flow.loops as m; del m.scan_p",
]
SCRIPT = """
import traceback
{moved}
try:
    {use}
except ImportError as error:
    print(error)
    frames = traceback.extract_tb(error.__cause__.__traceback__)
    print("FILE", [f.filename for f in frames if "quabla_jax" in f.filename][-1])
else:
    raise SystemExit("nothing was missed")
"""


@pytest.mark.parametrize("use", ["import quabla_jax.compat.lax", "import quabla_jax as qb; qb.jit"])
@pytest.mark.parametrize("moved", MOVED)
def test_a_name_that_is_gone_at_import(moved, use):
    if use.startswith("import quabla_jax as") and moved is not MOVED[0]:
        pytest.skip("one door is enough for the other names")
    run = subprocess.run([sys.executable, "-c", SCRIPT.format(moved=moved, use=use)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    text, _, file = run.stdout.strip().rpartition("FILE ")
    assert f"jax {SUPPORTED}" in text and "pip install 'jax>=" in text
    assert file.endswith("lowering/jax_api.py")


def test_a_name_that_is_gone_later(monkeypatch):
    """What only a function of jax_api asks for."""
    private = jax_api._Private(jax_api._pe._module)
    monkeypatch.delattr(private._module, "dce_jaxpr")
    monkeypatch.setattr(jax_api, "_pe", private)
    with pytest.raises(AttributeError, match=f"works with jax {SUPPORTED}.*dce_jaxpr"):
        jax_api.prune_jaxpr(None, [], [])


def test_no_function_of_jax_api_reaches_a_private_module_past_the_guard():
    bare = {
        k for k, v in vars(jax_api).items() if isinstance(v, types.ModuleType) and v.__name__.startswith("jax._src")
    }
    assert bare == {"_conditionals"}


def test_the_sentence_names_what_is_missing_and_the_cure():
    text = unsupported("no x")
    assert "no x" in text and jax.__version__ in text and "<0.13" in text
