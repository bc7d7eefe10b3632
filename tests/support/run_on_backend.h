// A module through the shared passes and a backend, from host tensors to host tensors.
#pragma once

#include "src/backends/backend.h"
#include "src/runtime/host_tensor.h"

namespace weft::test {

// `arguments` in the order of the entry function's parameters; those of the argument block are packed here.
absl::StatusOr<std::vector<HostTensor>> RunOnBackend(Backend& backend, const ir::Module& module,
                                                     std::span<const HostTensor> arguments,
                                                     const CompileOptions& options = {});

// The same of a module that is as the backend takes it.
absl::StatusOr<std::vector<HostTensor>> RunLowered(Backend& backend, const ir::Module& module, std::span<const HostTensor> arguments,
                                                   const CompileOptions& options = {});

}  // namespace weft::test
