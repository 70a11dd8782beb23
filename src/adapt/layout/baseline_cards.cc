#include <array>
#include <string_view>

#include "adapt/layout/baseline.h"
#include "base/text.h"

namespace tenuto {

const std::vector<PlannerCard>& planner_cards() {
  static const std::vector<PlannerCard> cards = {
      {Planner::Tenuto, "tenuto",
       "Tries the layouts of several programs on several orders of the devices and of all other "
       "planners, simulates the promising ones, and changes the best ones and their order of ops "
       "as long as the step gets shorter. Leaves out layouts in which a device has two stages, and "
       "recomputation.",
       "this project"},
      {Planner::MinCut, "spp",
       "Orders the devices by recursive minimum cuts, finds for each number of stages the layout "
       "whose busiest stage or link has the least to do, and takes the one whose step is shortest "
       "by the best of five orders of ops. Leaves out idle devices, and does not see how long the "
       "pipeline takes to fill and to drain before the layouts are made.",
       "Luo et al., INFOCOM 2022 (arXiv 2204.10562)"},
      {Planner::Dapple, "dapple",
       "Adds up warm-up, steady part and the reductions that outlast the backwards, and takes the "
       "layout of at most four stages for which this is least, run as 1F1B. Leaves out other "
       "orders of the devices than their numbers, idle devices and more stages.",
       "Fan et al., PPoPP 2021 (arXiv 2007.01045)"},
      {Planner::PipeDream, "pipedream",
       "Takes the layout whose slowest stage or transfer is fastest when gradients are reduced "
       "after every micro-batch, and runs it as 1F1B with one update a step. Leaves out that "
       "reductions come once a step, that speeds and links differ, and the time to fill and drain.",
       "Narayanan et al., SOSP 2019"},
      {Planner::Gpipe, "gpipe",
       "Gives each stage one device and balances the times of the stages; all forwards run before "
       "all backwards. Leaves out replicas, speeds, links and memory.",
       "Huang et al., NeurIPS 2019 (arXiv 1811.06965)"},
      {Planner::OneFOneB, "1f1b",
       "Gives each stage one device and the same number of layers, and runs as 1F1B. Leaves out "
       "replicas, the times of the layers, speeds and links.",
       "Narayanan et al., ICML 2021 (arXiv 2006.09503), PipeDream-Flush"},
      {Planner::DataParallel, "data-parallel",
       "Gives all layers to all devices, which share the rows of every micro-batch and reduce all "
       "gradients at the end of the step. Leaves out pipelines, and the overlap of the reduction "
       "with the last backward.",
       "Goyal et al., 2017 (arXiv 1706.02677)"},
      {Planner::HetPipe, "hetpipe",
       "Forms virtual workers with the same mix of speeds, each a pipeline whose cuts are balanced "
       "for its devices, joins the n-th stages of all of them as replicas, runs as 1F1B, and takes "
       "the best number of virtual workers. Leaves out virtual workers of different sizes, and, "
       "unlike the original, waits for all of them at the end of every step.",
       "Park et al., USENIX ATC 2020 (arXiv 2005.14038)"},
  };
  return cards;
}

Result<PlannerCard> find_planner(const std::string& name) {
  std::vector<std::string_view> names;
  for (const PlannerCard& card : planner_cards()) {
    if (card.name == name) return card;
    names.push_back(card.name);
  }
  const std::string near = nearest(name, names.data(), names.size());
  std::string all;
  for (const std::string_view each : names) all += cat(all.empty() ? "" : ", ", each);
  return invalid(cat("there is no planner \"", name, "\": ",
                     near.empty() ? cat("take one of ", all) : cat("did you mean ", near, "?")));
}

}  // namespace tenuto
