// The share of the fused-multiply-add peak that the convolutions of well-known networks reach in each direction, beside a
// probe taken in the same run. It looks inside: it links the CPU kernels themselves, not libweft.so.
#include <cstdio>
#include <utility>

#include "benchmarks/bench_util.h"
#include "benchmarks/kernels/conv_layer.h"

namespace {

using weft::ThreadPool;
using namespace weft::cpu;

struct Shape {
  const char* name;
  int64_t size, in, out, window, stride = 1, pad = 0, spread = 1;
};
constexpr Shape kShapes[] = {
    {"rn50 7x7s2 3-64 @224", 224, 3, 64, 7, 2, 3},
    {"rn50 1x1 64-64 @56", 56, 64, 64, 1},
    {"rn50 3x3 64-64 @56", 56, 64, 64, 3, 1, 1},
    {"rn50 1x1 64-256 @56", 56, 64, 256, 1},
    {"rn50 1x1 256-64 @56", 56, 256, 64, 1},
    {"rn50 1x1 256-128 @56", 56, 256, 128, 1},
    {"rn50 3x3s2 128-128 @56", 56, 128, 128, 3, 2, 1},
    {"rn50 1x1s2 256-512 @56", 56, 256, 512, 1, 2},
    {"rn50 1x1 128-512 @28", 28, 128, 512, 1},
    {"rn50 1x1 512-128 @28", 28, 512, 128, 1},
    {"rn50 3x3 128-128 @28", 28, 128, 128, 3, 1, 1},
    {"rn50 1x1 512-256 @28", 28, 512, 256, 1},
    {"rn50 3x3s2 256-256 @28", 28, 256, 256, 3, 2, 1},
    {"rn50 1x1s2 512-1024 @28", 28, 512, 1024, 1, 2},
    {"rn50 1x1 256-1024 @14", 14, 256, 1024, 1},
    {"rn50 1x1 1024-256 @14", 14, 1024, 256, 1},
    {"rn50 3x3 256-256 @14", 14, 256, 256, 3, 1, 1},
    {"rn50 1x1 1024-512 @14", 14, 1024, 512, 1},
    {"rn50 3x3s2 512-512 @14", 14, 512, 512, 3, 2, 1},
    {"rn50 1x1s2 1024-2048 @14", 14, 1024, 2048, 1, 2},
    {"rn50 1x1 512-2048 @7", 7, 512, 2048, 1},
    {"rn50 1x1 2048-512 @7", 7, 2048, 512, 1},
    {"rn50 3x3 512-512 @7", 7, 512, 512, 3, 1, 1},
    {"mbv2 3x3s2 3-32 @224", 224, 3, 32, 3, 2, 1},
    {"mbv2 1x1 32-16 @112", 112, 32, 16, 1},
    {"mbv2 1x1 16-96 @112", 112, 16, 96, 1},
    {"mbv2 1x1 24-144 @56", 56, 24, 144, 1},
    {"mbv2 1x1 144-24 @56", 56, 144, 24, 1},
    {"mbv2 1x1 32-192 @28", 28, 32, 192, 1},
    {"mbv2 1x1 192-64 @14", 14, 192, 64, 1},
    {"mbv2 1x1 64-384 @14", 14, 64, 384, 1},
    {"mbv2 1x1 576-96 @14", 14, 576, 96, 1},
    {"mbv2 1x1 160-960 @7", 7, 160, 960, 1},
    {"mbv2 1x1 320-1280 @7", 7, 320, 1280, 1},
    {"unet 3x3 1-32 @64", 64, 1, 32, 3, 1, 1},
    {"unet 3x3 32-32 @64", 64, 32, 32, 3, 1, 1},
    {"unet 3x3 64-128 @16", 16, 64, 128, 3, 1, 1},
    {"unet transposed 2x2 128-64 @16", 16, 128, 64, 2, 1, 1, 2},
    {"unet transposed 2x2 64-32 @32", 32, 64, 32, 2, 1, 1, 2},
    {"transposed 4x4 64-64 @16", 16, 64, 64, 4, 1, 2, 2},
};

using Direction = absl::Status (KernelSet::*)(const ConvCall&, ThreadPool&);
constexpr std::pair<const char*, Direction> kDirections[] = {{"forward", &KernelSet::Conv},
                                                             {"backward data", &KernelSet::ConvBackwardData},
                                                             {"backward weights", &KernelSet::ConvBackwardWeights}};

// 3x3 layers as the definition has them and on Winograd's tiles, calls in turn; forward with the kernel packed in every call and
// with it kept, as a weight is that comes to launch after launch. Each row: Winograd's time, the definition's, and their ratio.
bool CompareWinograd(KernelSet& kernels, ThreadPool& pool, int batch, const std::string& only, bool quick,
                     std::vector<bench::Row>* rows) {
  bool failed = false;
  for (const int64_t size : {7, 14, 28, 56}) {
    for (const int64_t channels : {16, 32, 64, 128, 256, 512}) {
      const std::string name = std::to_string(channels) + " @" + std::to_string(size);
      if (name.find(only) == std::string::npos) continue;
      bench::Layer layer(batch, size, channels, channels, 3, 1, 1, 1);
      struct Way {
        ConvCall call;
        Direction direction;
        std::vector<char> packed;
        std::vector<double> times;
      };
      std::vector<Way> ways;
      for (const auto& [direction, keeps] : {std::pair(&KernelSet::Conv, false), std::pair(&KernelSet::Conv, true),
                                             std::pair(&KernelSet::ConvBackwardData, false)}) {
        for (const UseWinograd use : {UseWinograd::kNever, UseWinograd::kWhereItFits}) {
          Way& way = ways.emplace_back(Way{layer.call, direction, {}, {}});
          way.call.winograd = use;
          if (!keeps) continue;
          way.packed.resize(static_cast<size_t>(PackedBytesOfW(kernels.target(), way.call)) + 64);
          char* const aligned = way.packed.data() + (64 - reinterpret_cast<uintptr_t>(way.packed.data()) % 64);
          failed = failed || !kernels.PackW(way.call, aligned, pool).ok();
          way.call.w = aligned;
          way.call.w_packed = true;
        }
      }
      for (int round = 0; round < (quick ? 6 : 31); ++round) {
        for (Way& way : ways) {
          const bench::Clock::time_point start = bench::Clock::now();
          failed = failed || !(kernels.*way.direction)(way.call, pool).ok();
          if (round > 0) way.times.push_back(bench::Since(start));
        }
      }
      constexpr const char* kWords[] = {"forward", "forward, kept", "backward data"};
      for (size_t i = 0; i < ways.size(); i += 2) {
        const double direct = bench::Median(ways[i].times), winograd = bench::Median(ways[i + 1].times);
        rows->push_back({"3x3 " + name + " " + kWords[i / 2], winograd * 1e6, "us", direct * 1e6, winograd / direct, {}});
      }
    }
  }
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Options options = bench::Parse(argc, argv);
  int batch = 1;
  std::string only, target_name = "auto";
  bool wrong = false, winograd = false;
  for (size_t i = 0; i < options.rest.size(); ++i) {
    const std::string& word = options.rest[i];
    if (word == "--winograd") {
      winograd = true;
      continue;
    }
    const bool takes = word == "--threads" || word == "--batch" || word == "--only" || word == "--target";
    if (!takes || i + 1 == options.rest.size()) {
      wrong = true;
      continue;
    }
    const std::string& value = options.rest[++i];
    if (word == "--threads") options.threads = bench::Count(value);
    if (word == "--batch") batch = bench::Count(value);
    if (word == "--only") only = value;
    if (word == "--target") target_name = value;
  }
  if (options.help || wrong || options.threads == 0 || batch == 0) {
    std::fputs("usage: conv_layers [--json] [--quick] [--threads N] [--batch N] [--only TEXT] [--target NAME] [--winograd] "
               "[--help]\n",
               options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  const absl::StatusOr<CpuTarget> target = TargetFromName(target_name);
  if (!target.ok()) {
    std::fprintf(stderr, "%s\n", std::string(target.status().message()).c_str());
    return 2;
  }
  KernelSet kernels(*target);
  ThreadPool pool(options.threads);
  pool.BeginRun();
  bool failed = false;
  std::vector<bench::Row> rows;
  if (winograd) failed = CompareWinograd(kernels, pool, batch, only, options.quick, &rows);
  for (const Shape& s : kShapes) {
    if (winograd) break;
    if (std::string(s.name).find(only) == std::string::npos) continue;
    const bench::Layer layer(batch, s.size, s.in, s.out, s.window, s.stride, s.pad, 1, s.spread);
    for (const auto& [words, direction] : kDirections) {
      if (s.in <= 3 && direction == &KernelSet::ConvBackwardData) continue;  // of images, which nobody asks for
      const std::string name = std::string(s.name) + " " + words;
      const absl::Status status = (kernels.*direction)(layer.call, pool);
      if (!status.ok()) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(status.message()).c_str());
        failed = true;
        continue;
      }
      const bench::Sample sample = bench::Measure(
          options.threads, [&] { (kernels.*direction)(layer.call, pool).IgnoreError(); }, options.quick ? 3 : 9, 0.5);
      if (sample.Void()) {
        std::fprintf(stderr, "%s: no undisturbed sample (%d dropped)\n", name.c_str(), sample.dropped);
        failed = true;
        continue;
      }
      const double rate = layer.flops / sample.seconds * 1e-9;
      rows.push_back({name, rate, "GF/s", sample.probe, rate / sample.probe, {{"ms", sample.seconds * 1e3}}});
    }
  }
  if (rows.empty() && !failed) {
    std::fprintf(stderr, "no layer's name has '%s' in it\n", only.c_str());
    return 2;
  }
  bench::Print(rows, options);
  return failed ? 1 : 0;
}
