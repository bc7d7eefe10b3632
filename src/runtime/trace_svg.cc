// The kernels of a trace as a picture: a bar a kernel, the most expensive first.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/runtime/number_text.h"
#include "src/runtime/trace_render.h"

namespace weft {
namespace {

constexpr size_t kMostKernels = 40;
// A label has a row of its own above its bar, and is cut where it would leave the picture.
constexpr int kWidth = 960, kMargin = 12, kFont = 12, kRow = 34, kBar = 12, kTop = 48;
constexpr double kCharacter = 7.3;  // of a monospaced font of that size
constexpr size_t kMostCharacters = static_cast<size_t>((kWidth - 2 * kMargin) / kCharacter);

// The first characters of a text as XML has them.
std::string Xml(std::string_view text) {
  std::string out;
  size_t characters = 0;
  const std::string valid = Utf8Of(text);
  for (size_t i = 0; i < valid.size(); ++i) {
    const char c = valid[i];
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80 && ++characters > kMostCharacters) break;
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

void Label(int y, std::string_view text, std::string* svg) {
  absl::StrAppend(svg, "<text x=\"", kMargin, "\" y=\"", y, "\">", Xml(text), "</text>\n");
}

}  // namespace

std::string TraceSvgOf(const TraceSummary& summary) {
  int64_t all = 0;
  for (const TraceSummary::Kernel& kernel : summary.kernels) all += kernel.nanoseconds;
  const size_t rows = std::min(summary.kernels.size(), kMostKernels);
  const int height = kTop + kRow * static_cast<int>(rows) + kMargin;
  std::string svg = absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", height,
                                 "\" font-family=\"monospace\" font-size=\"", kFont, "\">\n",
                                 "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  Label(kMargin + kFont,
        absl::StrCat(summary.kernels.size(), " kernels, ", FixedText(static_cast<double>(all) / 1e6, 3), " ms of ",
                     FixedText(static_cast<double>(summary.nanoseconds) / 1e6, 3), " ms, ", summary.steps, " steps",
                     rows < summary.kernels.size() ? absl::StrCat("; the dearest ", rows) : ""),
        &svg);
  const double most = rows > 0 ? static_cast<double>(summary.kernels[0].nanoseconds) : 1;
  for (size_t i = 0; i < rows; ++i) {
    const TraceSummary::Kernel& kernel = summary.kernels[i];
    const SpanName& name = *kernel.name;
    const auto took = static_cast<double>(std::max<int64_t>(kernel.nanoseconds, 1));
    std::string label =
        absl::StrCat(Right(FixedText(100 * took / static_cast<double>(std::max<int64_t>(all, 1)), 1), 5), " %  ",
                     kernel.calls, " x  ");
    if (name.flops >= 0) {
      const double rate = static_cast<double>(name.flops) * static_cast<double>(kernel.calls) / took;
      absl::StrAppend(&label, FixedText(rate, 1), " GF/s  ");
    }
    absl::StrAppend(&label, name.text, ", ", name.implementation,
                    name.where.empty() ? "" : absl::StrCat(" (", name.where, ")"));
    const int y = kTop + kRow * static_cast<int>(i);
    Label(y + kFont, label, &svg);
    absl::StrAppend(&svg, "<rect x=\"", kMargin, "\" y=\"", y + kFont + 4, "\" width=\"",
                    FixedText(std::max(1.0, (kWidth - 2 * kMargin) * took / most), 1), "\" height=\"", kBar,
                    "\" fill=\"#4878a8\"/>\n");
  }
  return svg + "</svg>\n";
}

}  // namespace weft
