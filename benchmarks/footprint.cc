// This program measures what the library costs by being there: its stripped size (at most 44 MB) and a warm dlopen (at most 6 ms), the
// latter of a copy in a fresh process each time: this program is linked to the original, and a copy is another library.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "bench_util.h"
#include "weft.h"

namespace {

constexpr double kMaxMegabytes = 44, kMaxMilliseconds = 6;

// Milliseconds of dlopen and one call through it, in a child process.
double LoadOnce(const std::string& path) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const auto start = std::chrono::steady_clock::now();
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    using Version = uint32_t (*)();
    auto version = library == nullptr ? nullptr : reinterpret_cast<Version>(dlsym(library, "weft_abi_version"));
    double took = version == nullptr || version() >> 16 != 1 ? -1 : std::chrono::duration<double, std::milli>(
                                                                std::chrono::steady_clock::now() - start).count();
    if (write(pipe_ends[1], &took, sizeof took) != sizeof took) _exit(1);
    _exit(0);
  }
  double took = -1;
  if (child < 0 || read(pipe_ends[0], &took, sizeof took) != sizeof took) took = -1;
  if (child > 0) waitpid(child, nullptr, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  return took;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  if (options.help || !options.rest.empty()) {
    std::fputs("usage: footprint [--json] [--quick] [--help]\n", options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&weft_abi_version), &self) == 0) return 1;
  char folder[] = "/tmp/weft-footprint.XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string copy = std::string(folder) + "/libweft.so.1";
  const std::string strip = "strip -o '" + copy + "' '" + self.dli_fname + "'";
  if (std::system(strip.c_str()) != 0) {
    std::fprintf(stderr, "footprint: cannot make a stripped copy of %s\n", self.dli_fname);
    return 1;
  }
  struct stat status;
  const double megabytes = stat(copy.c_str(), &status) == 0 ? static_cast<double>(status.st_size) / 1e6 : 0;
  std::vector<double> times;
  LoadOnce(copy);  // the first reads the file
  for (int i = 0; i < (options.quick ? 5 : 25); ++i) times.push_back(LoadOnce(copy));
  unlink(copy.c_str());
  rmdir(folder);
  std::sort(times.begin(), times.end());
  if (times.front() < 0) {
    std::fprintf(stderr, "footprint: a copy of the library could not be opened\n");
    return 1;
  }
  const double median = times[times.size() / 2];
  bench::Print({{"library size stripped, against its limit", megabytes, "MB", kMaxMegabytes, megabytes / kMaxMegabytes, {}},
                {"dlopen warm median, against its limit", median, "ms", kMaxMilliseconds, median / kMaxMilliseconds, {}}},
               options);
  return 0;
}
