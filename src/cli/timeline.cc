// The timeline of profile_pictures.h.
#include <algorithm>

#include "src/cli/profile_pictures.h"
#include "src/cli/svg.h"

namespace weft::cli {
namespace {

constexpr double kLeft = 20, kRight = 30, kTop = 60, kRow = 15, kLane = 22, kAxis = 40;
// A box that is narrower is drawn as wide as this, and not at all where its row has one there already.
constexpr double kLeast = 0.4;

struct Kind {
  std::string_view name, color, meaning;
};
constexpr Kind kKinds[] = {{"caller", "#c8d4e4", "callers"},        {"launch", "#b0a0d0", "launches"},
                           {"kernel", "#88b878", "kernels"},        {"share", "#b8d8a8", "helping with one"},
                           {"compile", "#e0b070", "compiling"},     {"file", "#d8c8a0", "files"},
                           {"user", "#e8a0a0", "the program's own"}};

struct Window {
  double begin = 0, end = 1;
  double X(double at) const {
    return kLeft + (std::clamp(at, begin, end) - begin) / (end - begin) * (kWidth - kRight - kLeft);
  }
};

Window WindowOf(const Profile& profile) {
  std::vector<double> steps = profile.steps;
  std::ranges::sort(steps);
  if (steps.size() < 2) return {0, std::max(profile.end, 1.0)};
  const size_t last = steps.size() - 1;
  return {steps[last - 1], std::max(steps[last], steps[last - 1] + 1)};
}

struct Drawn {
  const ProfiledSpan* span;
  size_t depth;
};
// A thread's spans in the window, with how many are around each.
std::vector<Drawn> LaneOf(const Profile& profile, int64_t thread, const Window& window, size_t* rows) {
  std::vector<Drawn> lane;
  std::vector<double> ends;
  for (const ProfiledSpan& span : profile.spans) {
    if (span.thread != thread) continue;
    while (!ends.empty() && ends.back() <= span.begin) ends.pop_back();
    if (span.begin < window.end && span.begin + span.took > window.begin) {
      lane.push_back({&span, ends.size()});
      *rows = std::max(*rows, ends.size() + 1);
    }
    ends.push_back(span.begin + span.took);
  }
  return lane;
}

void DrawLane(const std::vector<Drawn>& lane, size_t rows, const Window& window, double top, Picture* picture) {
  std::vector<double> until(rows, 0);  // how far a row is drawn
  for (const auto& [span, depth] : lane) {
    const double from = window.X(span->begin), to = window.X(span->begin + span->took);
    const Kind* const kind = std::ranges::find(kKinds, span->kind, &Kind::name);
    const std::string_view color = kind == std::end(kKinds) ? "#d0d0d0" : kind->color;
    if (to - from < kLeast && from < until[depth]) continue;
    // A gap of a quarter of a pixel tells neighbours apart.
    const double width = std::max(to - from - (to - from > 2 ? 0.25 : 0), kLeast);
    picture->Box(from, top + kRow * static_cast<double>(depth), width, kRow - 1, color, span->name);
    until[depth] = from + width;
  }
}

}  // namespace

std::string TimelineSvg(const Profile& profile) {
  const Window window = WindowOf(profile);
  struct Lane {
    std::string name;
    std::vector<Drawn> spans;
    size_t rows = 0;
  };
  std::vector<Lane> lanes;
  double height = kTop + kAxis;
  for (const auto& [thread, name] : profile.lanes) {
    Lane lane = {name, {}, 0};
    lane.spans = LaneOf(profile, thread, window, &lane.rows);
    if (lane.spans.empty()) continue;
    height += kLane + kRow * static_cast<double>(lane.rows);
    lanes.push_back(std::move(lane));
  }
  const double milliseconds = (window.end - window.begin) / 1000;
  Picture picture(height, kLeft,
                  (profile.steps.size() < 2 ? "the whole trace, " : "one step, ") + Fixed(milliseconds, 3) +
                      " ms: a lane a thread");
  double x = kLeft;
  for (const Kind& kind : kKinds) {
    picture.Box(x, 30, 10, 10, kind.color, "");
    picture.Label(x + 14, 40, kind.meaning);
    x += 14 + kCharacter * static_cast<double>(kind.meaning.size()) + 18;
  }
  double top = kTop;
  for (const Lane& lane : lanes) {
    picture.Label(kLeft, top + kFont, lane.name);
    DrawLane(lane.spans, lane.rows, window, top + kLane - 4, &picture);
    top += kLane + kRow * static_cast<double>(lane.rows);
  }
  const double foot = height - kAxis + 4, step = StepOf(milliseconds);
  picture.Line(kLeft, foot, kWidth - kRight, foot, "black");
  for (double tick = 0; tick <= milliseconds; tick += step) {
    const double at = window.X(window.begin + 1000 * tick);
    picture.Line(at, foot, at, foot + 4, "black");
    picture.Label(at, foot + 16, Tick(tick), "middle");
  }
  picture.Label((kLeft + kWidth - kRight) / 2, foot + 31,
                profile.steps.size() < 2 ? "ms since the trace began" : "ms since the step before ended", "middle");
  return picture.Take();
}

}  // namespace weft::cli
