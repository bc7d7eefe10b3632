// See launch_look.h.
#include "src/runtime/launch_look.h"

#include "src/runtime/thread_pool.h"

namespace weft {

bool LaunchEnds() {
  const auto* const launch = static_cast<const RunningLaunch*>(ThreadPool::owner());
  return launch != nullptr && launch->look != nullptr && launch->look->Ended();
}

extern "C" int32_t weft_launch_ends() { return LaunchEnds() ? 1 : 0; }

}  // namespace weft
