// A chain of layers, in each of its forms: lines, a graph of operators, a model file. What is read
// has layers with names, and times and bytes that can be counted.
#include <algorithm>

#include "target.h"
#include "world/layer_chain.h"
#include "world/model_profile.h"
#include "world/profile_graph.h"

using namespace tenuto;

namespace {

void expect_chain(const Result<LayerChain>& chain) {
  if (!chain.ok()) {
    expect_sentence(chain.error(), "input");
    return;
  }
  const std::vector<Layer>& layers = chain.value().model.layers;
  CHECK(!layers.empty() && layers.size() == chain.value().names.size(), "a name for each layer");
  CHECK(check_totals(chain.value(), "input").ok(), "a chain that can be counted");
  CHECK(std::all_of(layers.begin(), layers.end(),
                    [](const Layer& layer) {
                      return layer.forward.count() >= 0 && layer.backward_input.count() >= 0 &&
                             layer.activation.count >= 0 && layer.parameters.count >= 0;
                    }),
        "no layer takes less than no time");
}

void expect_profile(std::string_view text) {
  const auto profile = model_profile_from_json(text, "input");
  if (!profile.ok()) {
    expect_sentence(profile.error(), "input");
    return;
  }
  const auto again = model_profile_from_json(to_json(profile.value()), "written");
  CHECK(again.ok(), "what was written is not read: " + again.error().message);
  for (const int32_t rows : {1, 7, 1'000'000}) {
    expect_chain(chain_at(profile.value(), rows, "input"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = text_of(data, size);
  expect_chain(chain_from_text(text, "input"));
  expect_chain(chain_from_profile_graph(text, "input"));
  expect_profile(text);
  (void)is_profile_graph(text);
  return 0;
}
