// Chains of layers and graphs of operators, read from files.
#include "world/layer_chain.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/random.h"
#include "base/text.h"
#include "shared_data.h"
#include "world/job_file.h"
#include "world/profile_graph.h"

namespace tenuto {
namespace {

// The error for a text of either form, without the name of the file.
std::string refusal(const std::string& text) {
  const File file(text);
  const auto chain = load_chain(file.path());
  if (chain.ok()) return "accepted";
  EXPECT_EQ(chain.error().code, Code::Invalid);
  EXPECT_EQ(chain.error().reach, Reach::Call);
  const std::string& message = chain.error().message;
  EXPECT_EQ(message.find(file.path()), 0U) << message;
  return message.substr(file.path().size() + 1);
}

LayerChain read(const std::string& text) {
  const auto chain = is_profile_graph(text) ? chain_from_profile_graph(text, "test")
                                            : chain_from_text(text, "test");
  EXPECT_TRUE(chain.ok()) << chain.error().message;
  return chain.ok() ? chain.value() : LayerChain{};
}

// The numbers of a chain in the form of its file; the last layer sends nothing.
std::string text_of(const LayerChain& chain) {
  std::string text;
  for (const Layer& layer : chain.model.layers) {
    const bool last = &layer == &chain.model.layers.back();
    text += cat(to_milliseconds(layer.forward), " ", to_milliseconds(layer.backward_input), " ",
                last ? 0 : layer.activation.count, " ", layer.parameters.count, "\n");
  }
  return text;
}

std::string node(const std::string& id, const std::string& operation, const std::string& forward,
                 const std::string& output, const std::string& parameters = "0.000") {
  return cat(id, " -- ", operation, " -- forward_compute_time=", forward,
             ", backward_compute_time=", forward, ", activation_size=", output,
             ", parameter_size=", parameters, "\n");
}

TEST(LayerChain, ReadsLinesOfFiveFields) {
  const LayerChain chain =
      read("# a comment\n\n1.5 2 1e6 0 first layer \r\n\t0\t0.25\t7\t12\tsecond # not a comment\n");
  ASSERT_EQ(chain.names, (std::vector<std::string>{"first layer", "second # not a comment"}));
  const Layer& first = chain.model.layers[0];
  EXPECT_EQ(first.forward, from_milliseconds(1.5));
  EXPECT_EQ(first.backward_input, from_milliseconds(2));
  EXPECT_EQ(first.backward_weight, Duration{});
  EXPECT_EQ(first.activation, Bytes{1'000'000});
  EXPECT_EQ(first.stash, Bytes{1'000'000});
  EXPECT_EQ(chain.model.layers[1].parameters, Bytes{12});
}

TEST(LayerChain, RefusesInOneSentence) {
  const std::string form = "'forward_ms backward_ms activation_bytes parameter_bytes name'";
  const std::string none = cat(" expected a layer on each line, ", form, ", found none");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", none},
      {"\n \n# nothing\n", none},
      {"1 2 3 4 a\n1 2 3\n", cat("2:1: expected ", form, ", found 3 of these 5 fields")},
      {"  1 2 3 4\n", cat("1:3: expected ", form, ", found 4 of these 5 fields")},
      {"1 2 3 4 a\n1 x 3 4 b\n",
       "2:3: expected backward_ms, milliseconds from 0 to 2305843009213.694, found 'x'"},
      {"nan 2 3 4 a\n",
       "1:1: expected forward_ms, milliseconds from 0 to 2305843009213.694, found 'nan'"},
      {"1 inf 3 4 a\n",
       "1:3: expected backward_ms, milliseconds from 0 to 2305843009213.694, found 'inf'"},
      {"1 2 -3 4 a\n",
       "1:5: expected activation_bytes, bytes from 0 to 9007199254740992, found '-3'"},
      {"1 2 3 1e16 a\n",
       "1:7: expected parameter_bytes, bytes from 0 to 9007199254740992, found '1e16'"},
      {"1 2 3 4,5 a\n",
       "1:7: expected parameter_bytes, bytes from 0 to 9007199254740992, found '4,5'"},
      {"1e400 2 3 4 a\n",
       "1:1: expected forward_ms, milliseconds from 0 to 2305843009213.694, found '1e400'"},
      {"0 0 3 4 a\n0 1e-9 3 4 b\n",
       " expected a layer that takes time, found forward and backward times of 0 ms in every "
       "layer"},
      {"2e12 2e12 3 4 a\n",
       " the layers together take longer than 73 years, the longest time that tenuto can count; "
       "are the times in milliseconds?"},
      {"1 2 9e15 4 a\n1 2 9e15 4 b\n",
       " the layers together have more than 9007199254740992 bytes of activations and parameters; "
       "are the sizes in bytes?"},
      {std::string("1 2 3 \0 5 a\n", 12),
       "1:7: expected parameter_bytes, bytes from 0 to 9007199254740992, found '?'"},
      {std::string(100, 'x') + " 2 3 4 a\n",
       cat("1:1: expected forward_ms, milliseconds from 0 to 2305843009213.694, found '",
           std::string(40, 'x'), "...'")},
  };
  for (const auto& [text, sentence] : cases) EXPECT_EQ(refusal(text), sentence) << text;
}

TEST(LayerChain, LimitsTheNumberOfLayers) {
  std::string text;
  for (int32_t i = 0; i < kMostChainLayers; ++i) text += "1 1 1 1 x\n";
  EXPECT_EQ(refusal(text), "accepted");
  EXPECT_EQ(refusal(text + "1 1 1 1 x\n"),
            " expected 100000 layers at most, found 100001; join neighbouring layers");
}

TEST(LayerChain, TakesPlainFilesOnly) {
  for (const char* path : {"/dev/zero", "/tmp", "/tmp/tenuto-there-is-no-such-file"}) {
    const auto chain = load_chain(path);
    ASSERT_FALSE(chain.ok());
    EXPECT_NE(chain.error().message.find(path), std::string::npos);
  }
}

TEST(ProfileGraph, IsToldByItsContent) {
  EXPECT_TRUE(is_profile_graph("\n" + node("node1", "Input", "0", "1")));
  EXPECT_TRUE(is_profile_graph("\tnode1 -- node2\n"));
  EXPECT_FALSE(is_profile_graph("1 2 3 4 conv -- forward_compute_time=1\n"));
  EXPECT_FALSE(is_profile_graph(""));
}

// The input's time is dropped, a view joins the layer before it where fewer bytes cross, and lists
// of sizes are summed.
TEST(ProfileGraph, BecomesAChain) {
  const LayerChain chain =
      read(node("n2", "Linear(in_features=1)", "1.0", "[60.0; 40.0]", "7.0") +
           node("n1", "Input", "17.0", "500.0") + node("n3", "View(-1)", "0.0", "30.0") +
           node("n4", "ReLU", "2.0", "9.0") + "\tn1 -- n2\n\tn2 -- n3\n\tn3 -- n4\n");
  EXPECT_EQ(text_of(chain), "1 1 30 7\n2 2 0 0\n");
  EXPECT_EQ(chain.names, (std::vector<std::string>{"Linear (n2)", "ReLU (n4)"}));
  EXPECT_EQ(chain.model.layers[0].stash, Bytes{100});
  EXPECT_EQ(chain.model.layers[1].stash, Bytes{9});
}

// With few places where a single tensor crosses, the graph is cut everywhere; a tensor that is
// needed twice crosses once.
TEST(ProfileGraph, CutsThroughBranchesWhenItMust) {
  const std::string text = node("a", "Conv", "1", "10") + node("b", "Conv", "2", "20") +
                           node("c", "Conv", "3", "30") + node("d", "Add", "4", "40") +
                           "a -- b\na -- c\nb -- c\na -- d\nc -- d\n";
  EXPECT_EQ(text_of(read(text)), "1 1 10 0\n2 2 30 0\n3 3 40 0\n4 4 0 0\n");
}

// With enough of them, a residual block stays whole.
TEST(ProfileGraph, CutsWhereOneTensorCrosses) {
  std::string text = node("n0", "Conv", "1", "1");
  for (int i = 0; i < 8; ++i) {
    const std::string from = cat("n", 3 * i), conv = cat("n", 3 * i + 1),
                      relu = cat("n", 3 * i + 2), add = cat("n", 3 * i + 3);
    text += node(conv, "Conv", "2", "50") + node(relu, "ReLU", "1", "50") +
            node(add, "Add", "1", cat(i + 2));
    text += cat(from, " -- ", conv, "\n", conv, " -- ", relu, "\n", relu, " -- ", add, "\n", from,
                " -- ", add, "\n");
  }
  EXPECT_EQ(text_of(read(text)),
            "1 1 1 0\n4 4 2 0\n4 4 3 0\n4 4 4 0\n4 4 5 0\n4 4 6 0\n4 4 7 0\n4 4 8 0\n4 4 0 0\n");
}

// Unused outputs and short side branches do not keep tensors alive: they are placed where they cost
// nothing.
TEST(ProfileGraph, PlacesSideBranchesWhereTheyAreUsed) {
  const std::string text = node("unused", "getitem", "0", "5") +
                           node("side", "Embedding", "1", "9") + node("a", "Conv", "1", "10") +
                           node("b", "Conv", "1", "10") + node("c", "Add", "1", "10") +
                           "side -- c\na -- b\na -- unused\nb -- c\n";
  EXPECT_EQ(text_of(read(text)), "1 1 10 0\n1 1 10 0\n1 1 19 0\n1 1 0 0\n");
}

TEST(ProfileGraph, RefusesInOneSentence) {
  const std::string one = node("a", "Conv", "1", "2"), two = node("b", "Conv", "1", "2");
  const std::string place_of_size = cat(one.find("activation_size") + 1);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {one + "a -- c\n", "2:6: expected a node of this file, found 'c'"},
      {one + one, "2:1: the node a stands twice"},
      {one + two,
       " expected a connected graph, found no way of edges between a and b; add the edge "
       "that is missing"},
      {one + two + "a -- b\nb -- a\n",
       " expected a graph without cycles, found a -> b -> a; remove one of "
       "these edges"},
      {one + "a -- a\n",
       " expected a graph without cycles, found a -> a; remove one of these "
       "edges"},
      {one + "something else\n",
       "2:1: expected an edge, 'ID -- ID', or a node, 'ID -- DESCRIPTION -- "
       "forward_compute_time=..., backward_compute_time=..., activation_size=..., "
       "parameter_size=...', found 'something else'"},
      {node("a", "Conv", "1", "nan"), cat("1:", place_of_size,
                                          ": expected activation_size= with a number from 0 to "
                                          "9007199254740992, found 'activation_size=nan'")},
      {node("a", "Conv", "1", "[1.0; -2]"),
       cat("1:", place_of_size,
           ": expected activation_size= with a number from 0 to "
           "9007199254740992, found 'activation_size=[1.0; -2]'")},
      {node("a", "Conv", "-1", "1"),
       "1:14: expected forward_compute_time= with a number from 0 to 2305843009213.694, found "
       "'forward_compute_time=-1'"},
      {"a -- Conv -- forward_compute_time=1\n",
       "1:36: expected backward_compute_time= with a number from 0 to 2305843009213.694, found ''"},
      {"a -- b\n", "1:1: expected a node of this file, found 'a'"},
      {node("a", "Input", "5", "1"),
       " expected a layer that takes time, found forward and backward times of 0 ms in every "
       "layer"},
  };
  for (const auto& [text, sentence] : cases) EXPECT_EQ(refusal(text), sentence) << text;
}

// A long cycle is shown in part.
TEST(ProfileGraph, ShortensALongCycle) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += node(cat("n", i), "Conv", "1", "1");
  for (int i = 0; i < 20; ++i) text += cat("n", i, " -- n", (i + 1) % 20, "\n");
  EXPECT_EQ(refusal(text),
            " expected a graph without cycles, found n0 -> n1 -> n2 -> n3 -> n4 -> n5 -> n6 -> ... "
            "-> n0; remove one of these edges");
}

// A random graph without cycles: edges lead from lower to higher numbers, each node but the first
// has one to it.
std::string random_graph(Random& random, int count, std::vector<double>& sums) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    const int time = static_cast<int>(random.below(4)), bytes = static_cast<int>(random.below(50)),
              weights = static_cast<int>(random.below(3));
    sums[0] += time;
    sums[1] += weights;
    lines.push_back(node(cat("n", i), "Op", cat(time), cat(bytes), cat(weights)));
  }
  for (int i = 1; i < count; ++i) {
    const int edges = 1 + static_cast<int>(random.below(3));
    for (int e = 0; e < edges; ++e) {
      const auto from = random.below(i);
      lines.push_back(cat("n", from, " -- n", i, "\n"));
    }
  }
  for (size_t i = lines.size(); i > 1; --i)
    std::swap(lines[i - 1], lines[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  return std::accumulate(lines.begin(), lines.end(), std::string());
}

TEST(ProfileGraph, KeepsAllTimesAndParameters) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<double> sums(2);
    const std::string text = random_graph(random, 1 + static_cast<int>(random.below(40)), sums);
    if (sums[0] == 0) continue;
    const LayerChain chain = read(text);
    double time = 0, parameters = 0;
    for (const Layer& layer : chain.model.layers) {
      EXPECT_TRUE(layer.forward.count() > 0 || layer.parameters.count > 0) << "seed " << seed;
      time += to_milliseconds(layer.forward);
      parameters += static_cast<double>(layer.parameters.count);
    }
    EXPECT_EQ(time, sums[0]) << "seed " << seed;
    EXPECT_EQ(parameters, sums[1]) << "seed " << seed;
  }
}

// Our chains of three measured graphs are those that were cut by another program.
TEST(ProfileGraph, MeasuredGraphs) {
  for (const char* name : {"gnmt", "resnet50", "vgg16"}) {
    const std::string path = shared_data(cat("planner/pipedream_", name, ".txt"));
    if (!std::ifstream(path)) GTEST_SKIP() << path << " is absent";
    const auto graph = load_chain(path);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    const auto chain = load_chain(shared_data(cat("planner/piped_", name, ".chain")));
    ASSERT_TRUE(chain.ok()) << chain.error().message;
    EXPECT_EQ(text_of(graph.value()), text_of(chain.value())) << name;
  }
}

}  // namespace
}  // namespace tenuto
