"""A training step of tests/support/models.py over four chips that are not there, as a user of JAX lays it out, compiled by libtpu:
meshes_jax.py TOPOLOGY PRECISION NAME LAYOUT prints an object of JSON, the optimised program and its figures. Runs where JAX is, with
TPU_LIBRARY_PATH."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models_jax  # noqa: E402, it sets what JAX reads when it is imported
import models  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def main():
    topology, precision, name, layout = sys.argv[1:]
    model = models.MODELS[name]()
    axes, batch = models.LAYOUTS[layout]
    names, sizes = zip(*(axis.split("=") for axis in axes.split(",")))
    sizes = tuple(map(int, sizes))
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    mesh = Mesh(np.array(devices[:np.prod(sizes)]).reshape(sizes), names)

    def like(shape, spec=(), dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*(None if word in (None, "-") else word for word in spec))))

    state = [[like(shape, models.spec_of(layout, k, shape))] * model.slots for k, shape in enumerate(model.shapes)]
    arguments = state, like((2,), dtype=jnp.uint32), like(model.batch, (batch,)), like(model.batch[:1], (batch,), jnp.int32), like(()), like(())
    results = jax.tree.map(lambda leaf: leaf.sharding, (state, arguments[1], like(())))
    step = jax.jit(models_jax.step_of(model).__wrapped__, donate_argnums=(0, 1), out_shardings=results)
    with jax.default_matmul_precision(precision):
        compiled = step.trace(*arguments).lower(lowering_platforms=("tpu",)).compile()
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    print(json.dumps({"text": compiled.as_text(), "flops": int(cost["flops"]), "bytes_accessed": int(cost["bytes accessed"]),
                      "temporary_bytes": memory.temp_size_in_bytes}))


if __name__ == "__main__":
    main()
