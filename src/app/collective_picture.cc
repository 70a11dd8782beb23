// A procedure's rounds as SVG.
#include <algorithm>
#include <map>

#include "app/collective.h"
#include "base/contains.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr double kLeft = 64, kTop = 56, kRow = 30;
constexpr double kLane = 15;        // between two arrows of one round
constexpr size_t kNamedChunks = 3;  // an arrow names so many chunks, then how many more

// "3", "3 4 5", "3 4 5 +2".
std::string chunks_of(const Round& round, MessageRange message) {
  std::string text;
  for (size_t m = message.first; m < message.end; ++m) {
    if (m - message.first == kNamedChunks) {
      return cat(text, " +", message.end - m);
    }
    text += cat(text.empty() ? "" : " ", round.moves[m].chunk);
  }
  return text;
}

std::string line(double x, double from, double to, std::string_view kind) {
  return cat("<line class=\"", kind, "\" x1=\"", fixed(x, 1), "\" y1=\"", fixed(from, 1),
             "\" x2=\"", fixed(x, 1), "\" y2=\"", fixed(to, 1), "\" marker-end=\"url(#", kind,
             ")\"/>\n");
}

std::string word(double x, double y, std::string_view kind, std::string_view text) {
  return cat("<text class=\"", kind, "\" x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\">", text,
             "</text>\n");
}

// The text escaped for SVG: names may come from a file.
std::string escaped(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    if (letter == '&') {
      safe += "&amp;";
    } else if (letter == '<') {
      safe += "&lt;";
    } else if (letter == '>') {
      safe += "&gt;";
    } else {
      safe += letter;
    }
  }
  return safe;
}

std::string head(double width, double height) {
  std::string text =
      cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", fixed(width, 0), "\" height=\"",
          fixed(height, 0), "\">\n<style>\n", "text { font: 11px sans-serif; fill: #333 }\n",
          ".title { font-weight: bold; font-size: 13px }\n",
          ".late { fill: #b3261e; font-weight: bold }\n",
          ".chunk { font-size: 9px; text-anchor: middle; paint-order: stroke;",
          " stroke: white; stroke-width: 3px }\n", ".round { text-anchor: middle; fill: #777 }\n",
          ".member { stroke: #ccc }\n.cut { stroke: #999; stroke-dasharray: 3 3 }\n",
          "line.add { stroke: #c75b12; stroke-width: 1.4 }\n",
          "line.put { stroke: #2463a6; stroke-width: 1.4 }\n</style>\n<defs>\n");
  for (const auto& [kind, colour] : {std::pair("add", "#c75b12"), std::pair("put", "#2463a6")}) {
    text += cat("<marker id=\"", kind, "\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" ",
                "markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" ",
                "fill=\"", colour, "\"/></marker>\n");
  }
  return text + "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
}

}  // namespace

std::string svg_of(const Procedure& procedure) {
  const Collective& collective = procedure.collective;
  std::map<WorkerId, double> y;
  for (const WorkerId member : collective.members) {
    const auto row = static_cast<double>(y.size());
    y.emplace(member, kTop + kRow * (row + 0.5));
  }
  const double bottom = kTop + kRow * static_cast<double>(y.size());
  double x = kLeft, section_left = kLeft;
  auto section = procedure.sections.begin();
  std::string rounds;
  for (size_t r = 0; r < collective.rounds.size(); ++r) {
    const Round& round = collective.rounds[r];
    const double left = x;
    size_t arrows = 0;
    for (size_t i = 0; i < round.moves.size(); ++arrows) {
      const MessageRange message = message_at(round, i);
      const Move& move = round.moves[i];
      x += kLane;
      const double from = y.at(move.from), to = y.at(move.to);
      rounds += line(x, from, to, move.add ? "add" : "put");
      // Beside the tail, where no other arrow's head is.
      rounds += word(x, from + (to > from ? -3 : 9), "chunk", chunks_of(round, message));
      i = message.end;
    }
    x += kLane;
    rounds += word((left + x) / 2, kTop - 4, "round", cat(r));
    const bool ends =
        section != procedure.sections.end() && section->round_end == static_cast<int32_t>(r) + 1;
    rounds += cat("<line class=\"", ends ? "cut" : "member", "\" x1=\"", fixed(x, 1), "\" y1=\"",
                  fixed(ends ? kTop - 30 : kTop, 1), "\" x2=\"", fixed(x, 1), "\" y2=\"",
                  fixed(bottom, 1), "\"/>\n");
    if (ends) {
      rounds += word(section_left + 4, kTop - 18, "section", escaped(section->name));
      section_left = x;
      ++section;
    }
  }
  const double width = std::max(x + 16, 420.0);
  std::string text = head(width, bottom + 16);
  text += word(8, 18, "title",
               cat(escaped(procedure.name), ": ", collective.members.size(), " members, ",
                   collective.chunk_count, " chunks, ", collective.rounds.size(), " rounds"));
  for (const WorkerId member : collective.members) {
    const bool late = contains(procedure.late, member);
    text += cat("<line class=\"member\" x1=\"", fixed(kLeft, 1), "\" y1=\"", fixed(y[member], 1),
                "\" x2=\"", fixed(x, 1), "\" y2=\"", fixed(y[member], 1), "\"/>\n");
    text += word(8, y[member] + 4, late ? "late" : "name", cat(member, late ? " late" : ""));
  }
  return text + rounds + "</svg>\n";
}

}  // namespace tenuto
