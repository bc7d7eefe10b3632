// DOT text as a picture, through Graphviz where it is installed.
#pragma once

#include <string>

namespace weft::cli {

// Writes the SVG picture of a graph. False, and the problem, where Graphviz is not installed or the file cannot be written.
bool DrawSvg(const std::string& dot, const std::string& path, std::string* problem);

}  // namespace weft::cli
