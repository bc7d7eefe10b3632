// See svg.h.
#include "src/cli/svg.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace weft::cli {
namespace {

std::string Xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '&'                               ? "&amp;"
           : c == '<'                             ? "&lt;"
           : c == '>'                             ? "&gt;"
           : static_cast<unsigned char>(c) < 0x20 ? " "
                                                  : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string Fixed(double value, int digits) {
  char text[64];
  return std::string(text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits).ptr);
}

std::string Tick(double value) {
  char text[64];
  return std::string(text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 4).ptr);
}

double StepOf(double range) {
  const double rough = range / 6, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

Picture::Picture(double height, double left, std::string_view title) {
  svg_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + Fixed(kWidth, 0) + "\" height=\"" + Fixed(height, 0) +
         "\" font-family=\"monospace\" font-size=\"" + Fixed(kFont, 0) +
         "\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  Label(left, 20, title);
}

void Picture::Write(double x, double y, std::string_view text, std::string_view anchor) {
  svg_ += "<text x=\"" + Fixed(x) + "\" y=\"" + Fixed(y) + "\" text-anchor=\"" + std::string(anchor) + "\">" +
          Xml(text) + "</text>\n";
}

void Picture::Label(double x, double y, std::string_view text, std::string_view anchor) {
  const double width = kCharacter * static_cast<double>(text.size());
  const double left = anchor == "start" ? x : anchor == "end" ? x - width : x - width / 2;
  double at = y;
  for (int step = 1; Covers(left, at, width) && step < 80; ++step) {
    at = y + (step % 2 == 1 ? 1 : -1) * (step + 1) / 2 * (kFont + 1);
  }
  taken_.push_back({left, at - kFont, width, kFont});
  Write(x, at, text, anchor);
}

void Picture::Line(double x1, double y1, double x2, double y2, std::string_view color, double width) {
  svg_ += "<line x1=\"" + Fixed(x1) + "\" y1=\"" + Fixed(y1) + "\" x2=\"" + Fixed(x2) + "\" y2=\"" + Fixed(y2) +
          "\" stroke=\"" + std::string(color) + "\" stroke-width=\"" + Fixed(width) + "\"/>\n";
}

void Picture::Circle(double x, double y, double radius) {
  svg_ += "<circle cx=\"" + Fixed(x) + "\" cy=\"" + Fixed(y) + "\" r=\"" + Fixed(radius) +
          "\" fill=\"#4878a8\" fill-opacity=\"0.6\" stroke=\"#204060\"/>\n";
  taken_.push_back({x - radius, y - radius, 2 * radius, 2 * radius});
}

void Picture::Path(const std::string& points, std::string_view color, std::string_view fill) {
  svg_ += "<path d=\"" + points + "\" stroke=\"" + std::string(color) + "\" fill=\"" + std::string(fill) + "\"/>\n";
}

void Picture::Box(double x, double y, double width, double height, std::string_view color, std::string_view text) {
  svg_ += "<rect x=\"" + Fixed(x, 2) + "\" y=\"" + Fixed(y) + "\" width=\"" + Fixed(width, 2) + "\" height=\"" +
          Fixed(height) + "\" fill=\"" + std::string(color) + "\"/>\n";
  if (!text.empty() && kCharacter * static_cast<double>(text.size()) + 4 <= width)
    Write(x + 2, y + kFont - 1, text, "start");
}

bool Picture::Covers(double x, double y, double width) const {
  return std::ranges::any_of(taken_, [&](const Taken& box) {
    return x < box.x + box.width && box.x < x + width && y - kFont < box.y + box.height && box.y < y;
  });
}

}  // namespace weft::cli
