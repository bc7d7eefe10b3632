// Why an entry of the disk cache did not serve for another program: which parts of the two keys differ.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::compiler {

struct PartDifference {
  std::string part;         // "release", "platform", "processor", "options", "devices", "types", "program"
  std::string here, there;  // of a program, the first line that differs
};

// From the canonical forms as entries have them, whoever wrote them; empty if they are equal.
std::vector<PartDifference> DifferencesOf(std::string_view here, std::string_view there);
// The program of such a form: the canonical form of a trace, or StableHLO text where `traced` becomes false.
std::string_view ProgramIn(std::string_view canonical, bool* traced);
// How near two entries are: fewer is nearer. Those that compute the same come first, then those of most in common.
double DistanceOf(std::string_view here, std::string_view there);

}  // namespace weft::compiler
