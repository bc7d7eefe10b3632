// How long until the first training step is done, from the start of the process: the main example (train_fashion_mnist,
// built beside this program) once with an empty compile cache and then in five processes that find everything there. The
// second kind has a limit: 0.3 s without reading the images, no compilation.
#include <libgen.h>
#include <limits.h>

#include <cstdlib>

#include "bench_util.h"

namespace {

constexpr double kLimit = 0.3;

struct Start {
  double seconds = 0, reading = 0;
  long compilations = 0, hits = 0;
};

bool RunOnce(const std::string& program, const std::string& cache, Start* start) {
  const std::string command = "'" + program + "' --first-step --json --checkpoint none --cache '" + cache + "'";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return false;
  char line[512];
  bool found = false;
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    found = found || std::sscanf(line, "{\"first_step_s\": %lf, \"reading_s\": %lf, \"compilations\": %ld, \"cache_hits\": %ld",
                                 &start->seconds, &start->reading, &start->compilations, &start->hits) == 4;
  }
  return pclose(pipe) == 0 && found;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  if (options.help || !options.rest.empty()) {
    std::fputs("usage: start [--json] [--quick] [--help]\n", options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  char path[PATH_MAX] = {}, folder[] = "/tmp/weft-start.XXXXXX";
  if (readlink("/proc/self/exe", path, sizeof path - 1) < 0 || mkdtemp(folder) == nullptr) return 1;
  const std::string program = std::string(dirname(path)) + "/train_fashion_mnist";
  std::vector<double> seconds, reading;
  Start cold, warm;
  int rc = RunOnce(program, folder, &cold) ? 0 : 1;
  for (int i = 0; rc == 0 && i < (options.quick ? 3 : 5); ++i) {
    if (!RunOnce(program, folder, &warm)) rc = 1;
    if (warm.compilations != 0) {
      std::fprintf(stderr, "start: a later start compiled %ld programs\n", warm.compilations);
      rc = 1;
    }
    seconds.push_back(warm.seconds);
    reading.push_back(warm.reading);
  }
  if (std::system(("rm -rf '" + std::string(folder) + "'").c_str()) != 0) rc = 1;
  if (seconds.empty()) {
    std::fprintf(stderr, "start: %s did not finish its first step\n", program.c_str());
    return 1;
  }
  const double median = bench::Median(seconds);
  bench::Print({{"first start, empty cache", cold.seconds * 1e3, "ms", 0, 0, {}},
                {"second start median, against its limit", median * 1e3, "ms", kLimit * 1e3, median / kLimit, {}},
                {"reading the images, not in the above", bench::Median(reading) * 1e3, "ms", 0, 0, {}},
                {"compilations of a second start", static_cast<double>(warm.compilations), "", 0, 0, {}},
                {"programs from the cache", static_cast<double>(warm.hits), "", 0, 0, {}}},
               options);
  return rc;
}
