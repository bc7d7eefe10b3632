// See leaving.h; also the function of LAPACK that looks.
#include "src/linalg/leaving.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "src/runtime/launch_look.h"

namespace weft::linalg {

void LeaveIfLaunchEnds() {
  if (t_way_out != nullptr && LaunchEnds()) _longjmp(*t_way_out, 1);
}

// Tells whether two letters are equal but for their case. Nearly every routine asks it about its options, and eigenvalues and singular values
// without vectors, whose loops call no product, ask it in each iteration through dlamch.
extern "C" int lsame_(const char* a, const char* b, size_t /*length_a*/, size_t /*length_b*/) {
  LeaveIfLaunchEnds();
  return absl::ascii_tolower(static_cast<unsigned char>(*a)) == absl::ascii_tolower(static_cast<unsigned char>(*b)) ? 1
                                                                                                                    : 0;
}

}  // namespace weft::linalg
