// A picture as SVG whose labels do not lie over each other, and what axes need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

constexpr double kWidth = 1000, kFont = 12;  // of a picture, and of its letters
constexpr double kCharacter = 7.4;           // the width of one, all are alike

std::string Fixed(double value, int digits = 1);
// A power of two, or a number of few digits, as an axis has it.
std::string Tick(double value);
// 1, 2 or 5 times a power of ten, so that some ticks cover the range.
double StepOf(double range);

// The parts of a picture. A label moves down, or up, until it lies over none that is there.
class Picture {
 public:
  Picture(double height, double left, std::string_view title);
  // `y` is the line's foot; `anchor` start, middle or end.
  void Label(double x, double y, std::string_view text, std::string_view anchor = "start");
  void Line(double x1, double y1, double x2, double y2, std::string_view color, double width = 1);
  void Circle(double x, double y, double radius);
  void Path(const std::string& points, std::string_view color, std::string_view fill);
  // A box, with as much of the text as it has room for in it: all, or none.
  void Box(double x, double y, double width, double height, std::string_view color, std::string_view text);
  std::string Take() { return std::move(svg_) + "</svg>\n"; }

 private:
  struct Taken {
    double x, y, width, height;
  };
  // `y` is the foot of a line of text.
  bool Covers(double x, double y, double width) const;
  void Write(double x, double y, std::string_view text, std::string_view anchor);

  std::string svg_;
  std::vector<Taken> taken_;
};

}  // namespace weft::cli
