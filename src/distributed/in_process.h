// Groups whose members are threads of one process: each adds its part of all inputs, where they lie, and writes it to all outputs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/distributed/communicator.h"

namespace weft::distributed {

// The members of a new group, by rank; each is for one thread. `labels`, by rank, are shown in errors behind the rank ("rank 2
// (cpu:0#2)", at most 63 bytes); none where it is empty. At least one member. Starts no thread. After fork a child's call answers
// FAILED_PRECONDITION.
std::vector<std::unique_ptr<Communicator>> MakeInProcessGroup(int size, const std::vector<std::string>& labels = {});

}  // namespace weft::distributed
