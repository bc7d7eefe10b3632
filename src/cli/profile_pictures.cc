// See profile_pictures.h.
#include "src/cli/profile_pictures.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "src/cli/json.h"
#include "src/cli/svg.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

constexpr size_t kMostDrawn = 20;  // kernels of a roofline
constexpr double kLeft = 80, kRight = 30, kTop = 50, kPlot = 420, kLine = 16;

double RealOf(const Value* value) {
  if (value == nullptr) return 0;
  if (const auto* number = std::get_if<int64_t>(&value->data)) return static_cast<double>(*number);
  double real = 0;
  if (const auto* text = std::get_if<std::string>(&value->data)) {
    std::from_chars(text->data(), text->data() + text->size(), real);
  }
  return real;
}

double GigaflopsOf(const ProfiledKernel& kernel) {
  return static_cast<double>(kernel.flops) * static_cast<double>(kernel.calls) / kernel.nanoseconds;
}
double GigabytesOf(const ProfiledKernel& kernel) {
  return static_cast<double>(kernel.bytes) * static_cast<double>(kernel.calls) / kernel.nanoseconds;
}

// Operations a second that the machine has for what a kernel computes with, by the types in its implementation's name.
double PeakOf(const ProfiledKernel& kernel, const Ceilings& ceilings) {
  const auto has = [&](std::string_view type) { return kernel.implementation.find(type) != std::string::npos; };
  const int64_t peak = has("bf16") ? ceilings.bf16 : has("f64") ? ceilings.f64 : has("i8") ? ceilings.i8 : ceilings.f32;
  return static_cast<double>(peak) / 1e9;
}

std::string Share(double value, double most) { return most > 0 ? Fixed(100 * value / most, 0) + " %" : "-"; }

// A scale of 2^n.
struct LogScale {
  double least, most, from, to;  // values, and where they lie
  double At(double value) const {
    const double place = (std::log2(value) - std::log2(least)) / (std::log2(most) - std::log2(least));
    return from + std::clamp(place, 0.0, 1.0) * (to - from);
  }
};

double PowerBelow(double value) { return std::exp2(std::floor(std::log2(value))); }
double PowerAbove(double value) { return std::exp2(std::ceil(std::log2(value))); }

}  // namespace

bool ReadProfile(std::string_view trace, Profile* out) {
  Value value("");
  if (!FromJson(trace, &value) || FieldOf(value, "traceEvents") == nullptr) return false;
  std::map<std::tuple<std::string, std::string, std::string, int64_t, int64_t>, ProfiledKernel> kernels;
  for (const Value& event : ListIn(FieldsOf(value), "traceEvents")) {
    const Fields& fields = FieldsOf(event);
    const double begin = RealOf(FieldOf(event, "ts")), took = RealOf(FieldOf(event, "dur"));
    out->end = std::max(out->end, begin + took);
    const std::string name = TextIn(fields, "name"), kind = TextIn(fields, "ph");
    const Value* const args = FieldOf(event, "args");
    if (kind == "C" && args != nullptr) {
      const double now = RealOf(FieldOf(*args, "value"));
      if (name == "steps") out->steps.push_back(begin);
      if (name == "bytes in use") out->memory.emplace_back(begin, now);
    }
    const int64_t thread = NumberIn(fields, "tid");
    if (name == "thread_name" && args != nullptr) {
      out->lanes.emplace_back(thread, TextIn(FieldsOf(*args), "name"));
    }
    if (kind == "X") out->spans.push_back({thread, begin, took, name, TextIn(fields, "cat")});
    if (TextIn(fields, "cat") != "kernel" || args == nullptr) continue;
    const Fields& said = FieldsOf(*args);
    const bool knows_flops = FieldOf(*args, "flops") != nullptr, knows_bytes = FieldOf(*args, "bytes_read") != nullptr;
    const int64_t flops = knows_flops ? NumberIn(said, "flops") : -1;
    const int64_t bytes = knows_bytes ? NumberIn(said, "bytes_read") + NumberIn(said, "bytes_written") : -1;
    const std::string implementation = TextIn(said, "implementation"), where = TextIn(said, "where");
    ProfiledKernel& kernel = kernels[{name, implementation, where, flops, bytes}];
    if (kernel.calls == 0) kernel = {name, implementation, where, 0, flops, bytes, 0};
    ++kernel.calls;
    kernel.nanoseconds += 1000 * took;
  }
  for (auto& [key, kernel] : kernels) out->kernels.push_back(std::move(kernel));
  std::ranges::stable_sort(out->kernels, std::greater<>(), &ProfiledKernel::nanoseconds);
  std::ranges::stable_sort(out->memory, {}, &std::pair<double, double>::first);
  return true;
}

Fields KernelTable(const Profile& profile, const Ceilings& ceilings) {
  double all = 0;
  for (const ProfiledKernel& kernel : profile.kernels) all += kernel.nanoseconds;
  List rows = {Fields{{"share", "share"},
                      {"calls", "calls"},
                      {"gf", "GF/s"},
                      {"of_peak", "of peak"},
                      {"gb", "GB/s"},
                      {"of_memory", "of memory"},
                      {"kernel", "kernel"}}};
  for (const ProfiledKernel& kernel : profile.kernels) {
    if (kernel.nanoseconds <= 0) continue;
    const bool flops = kernel.flops > 0, bytes = kernel.bytes > 0;
    const double gigaflops = GigaflopsOf(kernel), gigabytes = GigabytesOf(kernel);
    rows.push_back(Fields{{"share", Fixed(100 * kernel.nanoseconds / all) + " %"},
                          {"calls", std::to_string(kernel.calls)},
                          {"gf", flops ? Fixed(gigaflops) : "-"},
                          {"of_peak", flops ? Share(gigaflops, PeakOf(kernel, ceilings)) : "-"},
                          {"gb", bytes ? Fixed(gigabytes) : "-"},
                          {"of_memory", bytes ? Share(gigabytes, static_cast<double>(ceilings.memory) / 1e9) : "-"},
                          {"kernel", kernel.name + ", " + kernel.implementation +
                                         (kernel.where.empty() ? "" : " (" + kernel.where + ")")}});
  }
  return {{"kernels", std::move(rows)}};
}

std::string RooflineSvg(const Profile& profile, const Ceilings& ceilings) {
  std::vector<const ProfiledKernel*> drawn;
  double all = 0;
  for (const ProfiledKernel& kernel : profile.kernels) {
    all += kernel.nanoseconds;
    if (kernel.flops > 0 && kernel.bytes > 0 && kernel.nanoseconds > 0 && drawn.size() < kMostDrawn)
      drawn.push_back(&kernel);
  }
  const double memory = static_cast<double>(ceilings.memory) / 1e9;
  LogScale x = {0.25, 64, kLeft, kWidth - kRight}, y = {1, 2, kTop + kPlot, kTop};
  double most = 1, least = 1;
  const std::pair<const char*, int64_t> peaks[] = {
      {"i8", ceilings.i8}, {"bf16", ceilings.bf16}, {"f32", ceilings.f32}, {"f64", ceilings.f64}};
  for (const auto& [type, peak] : peaks) most = std::max(most, static_cast<double>(peak) / 1e9);
  for (const ProfiledKernel* kernel : drawn) {
    const double intensity = static_cast<double>(kernel->flops) / static_cast<double>(kernel->bytes);
    x.least = std::min(x.least, PowerBelow(intensity));
    x.most = std::max(x.most, PowerAbove(intensity * 1.01));
    least = std::min(least, GigaflopsOf(*kernel));
    most = std::max(most, GigaflopsOf(*kernel));
  }
  y.least = PowerBelow(least);
  y.most = 2 * PowerAbove(most);
  Picture picture(kTop + kPlot + 70 + kLine * static_cast<double>(drawn.size()), kLeft,
                  "roofline: " + (ceilings ? ceilings.cpu : "ceilings not measured (weft ceilings)"));
  for (double tick = x.least; tick <= x.most; tick *= 4) {
    picture.Line(x.At(tick), kTop, x.At(tick), kTop + kPlot, "#e4e4e4");
    picture.Label(x.At(tick), kTop + kPlot + kLine, Tick(tick), "middle");
  }
  for (double tick = y.least; tick <= y.most; tick *= 4) {
    picture.Line(kLeft, y.At(tick), kWidth - kRight, y.At(tick), "#e4e4e4");
    picture.Label(kLeft - 6, y.At(tick) + 4, Tick(tick), "end");
  }
  picture.Label(kLeft, kTop - 8, "GF/s");
  picture.Label((kLeft + kWidth - kRight) / 2, kTop + kPlot + 2 * kLine, "operations a byte", "middle");
  for (const ProfiledKernel* kernel : drawn) {
    const double share = kernel->nanoseconds / all;
    picture.Circle(x.At(static_cast<double>(kernel->flops) / static_cast<double>(kernel->bytes)),
                   y.At(GigaflopsOf(*kernel)), 4 + 14 * std::sqrt(share));
  }
  if (memory > 0) {
    // The slope ends where it leaves the plot, or meets the highest peak.
    const double highest =
        static_cast<double>(std::max({ceilings.i8, ceilings.bf16, ceilings.f32, ceilings.f64})) / 1e9;
    const double from = std::max(x.least, y.least / memory), to = std::min(x.most, highest / memory);
    if (to > from) picture.Line(x.At(from), y.At(from * memory), x.At(to), y.At(to * memory), "#c04040", 1.5);
    const double middle = std::sqrt(from * std::max(from, to));
    picture.Label(x.At(middle) + 14, y.At(middle * memory) + 14, "memory " + Fixed(memory) + " GB/s");
  }
  for (const auto& [type, peak] : peaks) {
    const double rate = static_cast<double>(peak) / 1e9;
    if (rate <= 0) continue;
    picture.Line(x.At(std::min(rate / memory, x.most)), y.At(rate), kWidth - kRight, y.At(rate), "#c04040", 1.5);
    picture.Label(kWidth - kRight, y.At(rate) - 4, std::string(type) + " " + Fixed(rate) + " GF/s", "end");
  }
  for (size_t i = 0; i < drawn.size(); ++i) {
    const ProfiledKernel& kernel = *drawn[i];
    const double radius = 4 + 14 * std::sqrt(kernel.nanoseconds / all);
    const double at = x.At(static_cast<double>(kernel.flops) / static_cast<double>(kernel.bytes));
    picture.Label(at + radius + 2, y.At(GigaflopsOf(kernel)) - 6, std::to_string(i + 1));
    constexpr size_t kMost = 118;
    std::string text = std::to_string(i + 1) + "  " + Fixed(100 * kernel.nanoseconds / all) + " %  " + kernel.name +
                       ", " + kernel.implementation + (kernel.where.empty() ? "" : " (" + kernel.where + ")");
    if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
    picture.Label(kLeft, kTop + kPlot + 60 + kLine * static_cast<double>(i), text);
  }
  return picture.Take();
}

std::string MemorySvg(const Profile& profile) {
  constexpr double kMiB = 1 << 20;
  double most = 0;
  for (const auto& [at, bytes] : profile.memory) most = std::max(most, bytes / kMiB);
  const double end = std::max(profile.end / 1000, 1e-3), top = most > 0 ? most * 1.1 : 1;
  const auto x = [&](double microseconds) { return kLeft + microseconds / 1000 / end * (kWidth - kRight - kLeft); };
  const auto y = [&](double mebibytes) { return kTop + kPlot * (1 - mebibytes / top); };
  Picture picture(kTop + kPlot + 60, kLeft,
                  "memory in use, at most " + Fixed(most) + " MiB, " + std::to_string(profile.steps.size()) +
                      " steps (vertical lines)");
  const double time_step = StepOf(end), size_step = StepOf(top);
  for (double tick = 0; tick <= end; tick += time_step) {
    picture.Line(x(tick * 1000), kTop + kPlot, x(tick * 1000), kTop + kPlot + 4, "black");
    picture.Label(x(tick * 1000), kTop + kPlot + kLine + 2, Tick(tick), "middle");
  }
  for (double tick = 0; tick <= top; tick += size_step) {
    picture.Line(kLeft, y(tick), kWidth - kRight, y(tick), "#e4e4e4");
    picture.Label(kLeft - 6, y(tick) + 4, Tick(tick), "end");
  }
  for (const double step : profile.steps) picture.Line(x(step), kTop, x(step), kTop + kPlot, "#d0b060");
  picture.Label(kLeft, kTop - 8, "MiB");
  picture.Label((kLeft + kWidth - kRight) / 2, kTop + kPlot + 2 * kLine + 4, "ms since the trace began", "middle");
  std::string path;
  double last = 0;
  for (const auto& [at, bytes] : profile.memory) {
    const std::string to = Fixed(x(at)) + " ";
    path += path.empty() ? "M" + to + Fixed(y(bytes / kMiB))
                         : "L" + to + Fixed(y(last)) + " L" + to + Fixed(y(bytes / kMiB));
    last = bytes / kMiB;
  }
  if (!path.empty()) picture.Path(path + " L" + Fixed(kWidth - kRight) + " " + Fixed(y(last)), "#4878a8", "none");
  return picture.Take();
}

}  // namespace weft::cli
