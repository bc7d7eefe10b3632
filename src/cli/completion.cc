// `weft completion`: what a shell needs to complete this command's words, made of the table of commands alone.
#include <algorithm>
#include <cstdio>

#include "src/cli/command.h"

namespace weft::cli {
namespace {

constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

// The options of a command and what they say, --help among them.
std::vector<Flag> FlagsOf(const Command& command) {
  std::vector<Flag> flags = command.flags;
  flags.push_back({"--help", "says this", ""});
  return flags;
}

std::string Words(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "" : " ") + std::string(word);
  return text;
}

std::string NamesOf(const std::vector<Command>& commands) {
  std::vector<std::string_view> names;
  for (const Command& command : commands) names.push_back(command.name);
  return Words(names);
}

std::string FlagNamesOf(const Command& command) {
  std::vector<std::string_view> names;
  for (const Flag& flag : FlagsOf(command)) names.push_back(flag.name);
  return Words(names);
}

std::string Bash(const std::vector<Command>& commands) {
  std::string text =
      "# Completion of the command weft for bash.\n"
      "_weft() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} options= words=\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"" +
      NamesOf(commands) +
      " --help\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const Command& command : commands) {
    text += "    " + std::string(command.name) + ") options=\"" + FlagNamesOf(command) + "\" words=\"" +
            Words(command.choices) + "\" ;;\n";
  }
  return text +
         "  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "  elif [ \"$COMP_CWORD\" = 2 ] && [ -n \"$words\" ]; then\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _weft weft\n";
}

// Inside single quotes; zsh's descriptions have their own use of colons and brackets.
std::string Quoted(std::string_view text, std::string_view marks) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (marks.find(c) != marks.npos) out += '\\';
    out += c;
  }
  return out;
}

std::string Zsh(const std::vector<Command>& commands) {
  std::string text =
      "#compdef weft\n"
      "# Completion of the command weft for zsh.\n"
      "_weft() {\n"
      "  local -a commands options words_of\n"
      "  commands=(\n";
  for (const Command& command : commands) {
    text += "    '" + std::string(command.name) + ":" + Quoted(command.summary, ":") + "'\n";
  }
  text +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  case $words[2] in\n";
  for (const Command& command : commands) {
    text += "    " + std::string(command.name) + ")\n      options=(";
    for (const Flag& flag : FlagsOf(command)) {
      text += " '" + std::string(flag.name) + ":" + Quoted(flag.doc, ":") + "'";
    }
    text += " )\n      words_of=(" + Words(command.choices) + ") ;;\n";
  }
  return text +
         "  esac\n"
         "  if [[ $PREFIX == -* ]]; then\n"
         "    _describe option options\n"
         "  elif (( CURRENT == 3 && $#words_of )); then\n"
         "    compadd -- $words_of\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "_weft \"$@\"\n";
}

std::string Fish(const std::vector<Command>& commands) {
  std::string text = "# Completion of the command weft for fish.\n";
  for (const Command& command : commands) {
    const std::string name(command.name), seen = "complete -c weft -n '__fish_seen_subcommand_from " + name + "'";
    text += "complete -c weft -n __fish_use_subcommand -f -a " + name + " -d '" + Quoted(command.summary, "") + "'\n";
    for (const Flag& flag : FlagsOf(command)) {
      text += seen + " -l " + std::string(flag.name.substr(2)) + (flag.value.empty() ? "" : " -r") + " -d '" +
              Quoted(flag.doc, "") + "'\n";
    }
    if (!command.choices.empty()) text += seen + " -f -a '" + Words(command.choices) + "'\n";
  }
  return text;
}

int Execute(const Arguments& arguments) {
  const std::vector<Command> commands = AllCommands();
  constexpr std::string (*kMakers[])(const std::vector<Command>&) = {Bash, Zsh, Fish};
  const auto* const shell = std::ranges::find(kShells, arguments.parameter);
  if (shell == std::end(kShells)) {
    std::fprintf(stderr, "weft completion: there is no shell '%s'; there are bash, zsh and fish\n",
                 std::string(arguments.parameter).c_str());
    return kMisused;
  }
  const std::string text = kMakers[shell - kShells](commands);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kDone;
}

const Registration kCompletion({.name = "completion",
                                .summary = "what bash, zsh or fish needs to complete these commands and their options",
                                .parameter = "SHELL",
                                .flags = {},
                                .choices = {"bash", "zsh", "fish"},
                                .execute = Execute});

}  // namespace
}  // namespace weft::cli
