"""Every name that is promised is there, and what is not there is an error that says what comes later."""
import ast
import glob
import importlib
import json
import operator
import os
import unittest

import support
import torch
import torch_xla

# Module by module, in the order in which programs use them. What a name does is tested in the file that is named.
NAMES = {
    "torch_xla": ("__version__ device devices real_devices device_count sync manual_seed launch _XLAC",
                  "devices, steps, spawn"),
    "torch_xla.core.xla_model": (
        "xla_device rendezvous get_ordinal xrt_world_size mark_step optimizer_step master_print mesh_reduce all_gather "
        "set_rng_state is_master_ordinal get_local_ordinal save all_reduce reduce_scatter all_to_all get_rng_state wait_device_ops "
        "get_xla_supported_devices reduce_gradients _maybe_convert_to_cpu get_memory_info add_step_closure RateTracker "
        "xla_real_devices send_cpu_data_to_device xla_device_hw _fetch_gradients broadcast_master_param "
        "collective_broadcast set_replication "
        "REDUCE_SUM REDUCE_MUL REDUCE_AND REDUCE_OR REDUCE_MIN REDUCE_MAX ToXlaTensorArena", "devices, steps, collectives"),
    "torch_xla.core.functions": ("all_reduce all_gather", "collectives"),
    "torch_xla.distributed.xla_multiprocessing": ("spawn MpModelWrapper MpSerialExecutor", "spawn"),
    "torch_xla.distributed.parallel_loader": ("MpDeviceLoader ParallelLoader PerDeviceLoader", "loaders"),
    "torch_xla.distributed.data_parallel": ("DataParallel ParallelLoader Context", "spawn"),
    "torch_xla.distributed.xla_backend": ("ProcessGroupXla", "spawn"),
    "torch_xla.distributed.xla_dist": ("main", "dist"),
    "torch_xla.runtime": ("world_size global_ordinal device_type global_runtime_device_count local_ordinal initialize_cache "
                          "using_pjrt host_index is_spmd process_count process_index local_process_count local_device_count "
                          "addressable_device_count addressable_runtime_device_count global_device_count", "devices, environment"),
    "torch_xla.debug.metrics": ("metrics_report clear_all counter_names counter_value metric_names metric_data "
                                "executed_fallback_ops", "metrics"),
    "torch_xla.debug.profiler": ("start_server Trace StepTrace", "metrics"),
    "torch_xla.utils.utils": ("SampleGenerator getenv_as", "helpers"),
    "torch_xla.utils.serialization": ("save load", "serialization"),
    "torch_xla.test.test_utils": ("get_summary_writer write_to_summary close_summary_writer now print_training_update "
                                  "print_test_update", "helpers"),
    "torch_xla._internal.tpu": ("num_available_devices", "devices"),
    "torch_xla.amp": ("autocast GradScaler", "amp"),
    "torch_xla.amp.syncfree": ("SGD Adam AdamW", "syncfree"),
    "torch_xla.experimental.custom_kernel": ("flash_attention", "attention"),
    "torch_xla.distributed.spmd": ("", "devices"),
    "torch_xla.core.xla_env_vars": ("PJRT_DEVICE TPU_VISIBLE_CHIPS TPU_CONFIG DEVICE_MAP WORKERS", "environment"),
    "torch_xla._XLAC": ("_xla_metrics_report _xla_get_tensor_id", "metrics, devices"),
}
LATER_MODULES = ["distributed.fsdp", "experimental.eager_mode", "distributed.zero_redundancy_optimizer", "stablehlo"]
LATER_ATTRIBUTES = [("core.functions", "nms"), ("", "compile"), ("", "step"),
                    ("debug.profiler", "trace"), ("debug.profiler", "start_trace"), ("_XLAC", "_get_xla_tensors_text"),
                    ("runtime", "use_spmd"), ("distributed.spmd", "Mesh"),
                    ("experimental.custom_kernel", "paged_attention"), ("distributed.parallel_loader", "Nothing"), ("experimental", "nothing"),
                    ("distributed.xla_multiprocessing", "nothing"), ("utils.utils", "nothing"),
                    ("core.xla_env_vars", "nothing")]
# Modules that no program imports.
INSIDE = ("debug/spans.py", "debug/library.py")
TEXT = r"is not part of this torch_xla, which runs over Weft\. These come later: torch_xla\.distributed\.fsdp; .*stablehlo"


class Names(unittest.TestCase):

    def test_are_there(self):
        for module, (names, _) in NAMES.items():
            loaded = importlib.import_module(module)
            for name in names.split():
                self.assertTrue(hasattr(loaded, name), f"{module}.{name}")

    def test_each_is_used_by_the_tests_that_are_named(self):
        """A name that no test of its row mentions has no test of its effect."""
        folder = os.path.dirname(os.path.abspath(__file__))
        for module, (names, files) in NAMES.items():
            text = ""
            for file in files.split(", "):
                with open(os.path.join(folder, f"{file}_test.py"), encoding="utf-8") as opened:
                    text += opened.read()
            for name in set(names.split()) - {"__version__"}:  # That one is tested here.
                self.assertIn(name, text, f"{module}.{name}: {files}")

    def test_none_is_public_that_is_not_in_the_table(self):
        """A function or class that a module of this table defines, without _, is promised and so has a row."""
        for module, (names, _) in NAMES.items():
            with open(importlib.import_module(module).__file__, encoding="utf-8") as file:
                body = ast.parse(file.read()).body
            defined = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
            helpers = {"take_apart", "replace_file", "gathered", "counters", "TensorReference", "ProfilerServer"}
            extra = {name for name in defined if not name.startswith("_")} - set(names.split()) - helpers
            self.assertEqual(extra, set(), module)

    def test_import_of_the_package_is_enough(self):
        program = ("import torch_xla\nprint(torch_xla.core.xla_model.xla_device(), torch_xla.runtime.world_size(), "
                   "torch_xla.distributed.xla_multiprocessing.spawn.__name__)\n")
        self.assertEqual(support.check(self, support.run(program)), "xla:0 1 spawn\n")

    def test_version(self):
        self.assertRegex(torch_xla.__version__, r"^2\.9\.0\+weft$")


class Later(unittest.TestCase):

    def test_modules(self):
        for name in LATER_MODULES + ["nothing", "core.nothing", "distributed.nothing"]:
            with self.assertRaisesRegex(ImportError, TEXT):
                importlib.import_module("torch_xla." + name)
            package, _, last = ("torch_xla." + name).rpartition(".")
            with self.assertRaisesRegex(ImportError, TEXT):
                exec(f"from {package} import {last}")
            with self.assertRaisesRegex(ImportError, TEXT):
                exec(f"from torch_xla.{name} import something")

    def test_attributes(self):
        for module, name in LATER_ATTRIBUTES:
            loaded = importlib.import_module("torch_xla" + ("." + module if module else ""))
            self.assertFalse(hasattr(loaded, name))
            with self.assertRaisesRegex(AttributeError, rf"{name} {TEXT}"):
                getattr(loaded, name)
            with self.assertRaisesRegex(ImportError, TEXT):
                exec(f"from {loaded.__name__} import {name}")

    def test_every_module_answers(self):
        package = os.path.dirname(torch_xla.__file__)
        for path in glob.glob(os.path.join(package, "**", "*.py"), recursive=True):
            name = os.path.relpath(path, package)
            if name.startswith(("_weft", "selftest", "_later", "_state", "_step", "_world", "_collectives", "_processes")) or name in INSIDE:
                continue
            with open(path, encoding="utf-8") as file:
                self.assertIn("def __getattr__(name):", file.read(), name)

    def test_torch_has_the_names_that_the_description_gives(self):
        with open(os.path.join(support.ROOT, "include", "c_api", "weft_api.json"), encoding="utf-8") as file:
            api = json.load(file)
        said = [entry["names"] for entry in api["operations"] + [f["recorded"] for f in api["functions"] if f["recorded"]]]
        for name in {name for entry in said for name in entry.get("pytorch", [])}:
            with self.subTest(name):
                operator.attrgetter(name.removeprefix("torch."))(torch)

    def test_other_packages_are_left_alone(self):
        with self.assertRaisesRegex(ModuleNotFoundError, "^No module named 'no_such_package'$"):
            importlib.import_module("no_such_package")


if __name__ == "__main__":
    unittest.main()
