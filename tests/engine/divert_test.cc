// The split backward of any module. For each module, the gradients of three micro-batches are those
// of the fused backward bit for bit, with all input passes before all weight passes.
#include "engine/divert.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// After torch's headers, which have a CHECK of their own.
#include "base/text.h"

namespace tenuto {
namespace {

using W = std::map<std::string, at::Tensor>;

ParameterCard card(const std::string& name, std::vector<int64_t> shape) {
  return {name, std::move(shape), 0.3};
}

struct Model {
  std::vector<ParameterCard> cards;
  std::function<at::Tensor(const W& w, const at::Tensor& x)> forward;
  std::function<at::Tensor()> input;  // floating-point ones get a gradient
  int64_t deferred = 0;               // ops whose work a split backward defers
  bool input_trained = true;          // false: as in a first stage
};

struct Made {
  std::vector<at::Tensor> outputs, input_gradients;
  W gradients;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

Made run(const Model& model, bool split) {
  constexpr size_t kMicros = 3;
  at::set_num_threads(1);
  Weights weights(Job{}, model.cards, at::kCPU);
  W values;
  for (const Weight& weight : weights.all()) values[weight.card.name] = weight.value;
  Made made;
  std::vector<DeferredWork> work(kMicros);
  std::vector<std::vector<WeightGradient>> apart(kMicros);
  for (size_t micro = 0; micro < kMicros; ++micro) {
    at::manual_seed(micro + 1);
    at::Tensor x = model.input();
    if (x.is_floating_point() && model.input_trained) x.requires_grad_(true);
    weights.leave_apart(split);
    std::unique_ptr<DivertScope> scope;
    if (split) scope = std::make_unique<DivertScope>(weights, work[micro]);
    at::Tensor y = model.forward(values, x);
    scope.reset();
    const at::Tensor dy = at::randn_like(y);
    made.outputs.push_back(y.detach());
    if (split) scope = std::make_unique<DivertScope>(weights, work[micro]);
    torch::autograd::backward({y}, {dy});
    scope.reset();
    made.input_gradients.push_back(x.grad());
    if (split) {
      const auto later = [](const DeferredGradients& one) { return one.x.defined(); };
      EXPECT_EQ(std::ranges::count_if(work[micro], later), model.deferred);
      apart[micro] = weights.take_apart();
      append_to(work[micro], apart[micro]);
    }
  }
  at::Tensor scratch;
  for (size_t micro = 0; split && micro < kMicros; ++micro) {
    weights.add(apart[micro]);
    drain(work[micro], scratch);
  }
  for (const Weight& weight : weights.all()) {
    made.gradients[weight.card.name] = weight.gradient.clone();
  }
  return made;
}

void expect_equal(const Model& model, const std::string& name) {
  SCOPED_TRACE(name);
  const Made fused = run(model, false), split = run(model, true);
  for (const auto& [weight, gradient] : fused.gradients) {
    EXPECT_TRUE(same_bits(gradient, split.gradients.at(weight))) << weight;
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  }
  for (size_t i = 0; i < fused.outputs.size(); ++i) {
    EXPECT_TRUE(same_bits(fused.outputs[i], split.outputs[i]));
    EXPECT_TRUE(same_bits(fused.input_gradients[i], split.input_gradients[i]));
  }
}

std::function<at::Tensor()> normal(std::vector<int64_t> shape) {
  return [shape] { return at::randn(shape); };
}

std::function<at::Tensor()> tokens() {
  return [] { return at::randint(20, {2, 7}, at::kLong); };
}

TEST(Divert, LinearLayers) {
  const auto layer = [](bool bias) {
    return [bias](const W& w, const at::Tensor& x) {
      torch::nn::Linear linear(torch::nn::LinearOptions(24, 40).bias(bias));
      linear->weight = w.at("w");
      if (bias) linear->bias = w.at("b");
      return linear(x);
    };
  };
  const std::vector<ParameterCard> both = {card("w", {40, 24}), card("b", {40})};
  const std::vector<ParameterCard> alone = {card("w", {40, 24})};
  const auto turned = [] { return at::randn({7, 3, 24}).transpose(0, 1); };
  for (const bool trained : {true, false}) {
    expect_equal({both, layer(true), normal({5, 24}), 1, trained}, "2-D");
    expect_equal({both, layer(true), normal({3, 7, 24}), 1, trained}, "3-D");
    expect_equal({alone, layer(false), normal({5, 24}), 1, trained}, "2-D, no bias");
    expect_equal({alone, layer(false), normal({3, 7, 24}), 1, trained}, "3-D, no bias");
  }
  const auto torch_own = [](const W& w, const at::Tensor& x) {
    return at::linear(x, w.at("w"), w.at("b"));
  };
  expect_equal({both, torch_own, normal({3, 7, 24}), 1}, "3-D by torch's op");
  const auto columns = [] { return at::randn({24, 5}).t(); };
  const auto leaf = [](const auto& make) { return [make] { return make().detach(); }; };
  expect_equal({both, layer(true), leaf(columns), 1}, "2-D by columns");
  expect_equal({both, layer(true), leaf(turned), 1}, "3-D, not contiguous");
  expect_equal({both, torch_own, leaf(turned), 1}, "3-D by torch's op, not contiguous");
  expect_equal({alone, layer(false), leaf(turned), 1}, "3-D, not contiguous, no bias");
  std::vector<ParameterCard> frozen = both;
  frozen[0].trained = false;
  expect_equal({frozen, layer(true), normal({5, 24}), 0}, "a weight that is not trained");
  frozen = both;
  frozen[1].trained = false;
  expect_equal({frozen, layer(true), normal({5, 24}), 1}, "a bias that is not trained");
  const auto right = [](const W& w, const at::Tensor& x) { return x.matmul(w.at("w")); };
  expect_equal({{card("w", {24, 40})}, right, normal({3, 5, 24}), 1}, "a weight as it is");
  const auto left = [](const W& w, const at::Tensor& x) { return w.at("w").mm(x.t()); };
  expect_equal({alone, left, normal({5, 24}), 0}, "a weight as the left factor");
  const auto part = [](const W& w, const at::Tensor& x) {
    return at::linear(x, w.at("w").narrow(0, 8, 16));
  };
  expect_equal({alone, part, normal({5, 24}), 0}, "a part of a weight");
}

TEST(Divert, Convolutions) {
  using Options = torch::nn::Conv2dOptions;
  const auto layer = [](const Options& options) {
    return [options](const W& w, const at::Tensor& x) {
      torch::nn::Conv2d conv(options);
      conv->weight = w.at("w");
      if (options.bias()) conv->bias = w.at("b");
      return conv(x);
    };
  };
  const std::vector<ParameterCard> both = {card("w", {12, 8, 3, 3}), card("b", {12})};
  const std::vector<ParameterCard> grouped = {card("w", {12, 2, 3, 3}), card("b", {12})};
  const auto input = normal({2, 8, 11, 9});
  expect_equal({both, layer(Options(8, 12, 3)), input, 1}, "plain");
  expect_equal({both, layer(Options(8, 12, 3)), input, 1, false}, "first layer");
  expect_equal({both, layer(Options(8, 12, 3).stride(2).padding(1)), input, 1}, "stride, padding");
  expect_equal({both, layer(Options(8, 12, 3).dilation(2)), input, 1}, "dilation");
  expect_equal({grouped, layer(Options(8, 12, 3).groups(4).padding(2)), input, 1}, "groups");
  expect_equal({{both[0]}, layer(Options(8, 12, 3).bias(false)), input, 1}, "no bias");
  const auto last = [] {
    return at::randn({2, 8, 11, 9}).contiguous(at::MemoryFormat::ChannelsLast);
  };
  expect_equal({both, layer(Options(8, 12, 3)), last, 1}, "channels last");
  const auto transposed = [](const W& w, const at::Tensor& x) {
    return at::conv_transpose2d(x, w.at("w"), w.at("b"), 2);
  };
  expect_equal({{card("w", {8, 6, 3, 3}), card("b", {6})}, transposed, input, 1}, "transposed");
}

TEST(Divert, Embeddings) {
  const auto layer = [](int64_t padding, bool scale, bool sparse) {
    return [=](const W& w, const at::Tensor& x) {
      return at::embedding(w.at("w"), x, padding, scale, sparse);
    };
  };
  const std::vector<ParameterCard> table = {card("w", {20, 16})};
  expect_equal({table, layer(-1, false, false), tokens(), 1}, "plain");
  expect_equal({table, layer(3, false, false), tokens(), 1}, "a padding index");
  expect_equal({table, layer(-1, true, false), tokens(), 1}, "scaled by frequency");
  expect_equal({table, layer(-1, false, true), tokens(), 0}, "sparse");
}

TEST(Divert, NormAndAttention) {
  const auto norm = [](const W& w, const at::Tensor& x) {
    return at::linear(at::layer_norm(x, {24}, w.at("g"), w.at("h")), w.at("w"), w.at("b"));
  };
  expect_equal({{card("g", {24}), card("h", {24}), card("w", {40, 24}), card("b", {40})},
                norm,
                normal({3, 7, 24}),
                1},
               "norm");
  const auto attention = [](const W& w, const at::Tensor& x) {
    torch::nn::MultiheadAttention module(torch::nn::MultiheadAttentionOptions(24, 3).dropout(0.2));
    module->in_proj_weight = w.at("in");
    module->in_proj_bias = w.at("in_bias");
    module->out_proj->weight = w.at("out");
    module->out_proj->bias = w.at("out_bias");
    return std::get<0>(module(x, x, x));
  };
  expect_equal(
      {{card("in", {72, 24}), card("in_bias", {72}), card("out", {24, 24}), card("out_bias", {24})},
       attention,
       normal({7, 3, 24}),
       2},
      "attention");
}

// --- A GPT block
// -----------------------------------------------------------------------------------

constexpr int64_t kWidth = 24;

std::vector<ParameterCard> block_cards(const std::string& prefix, int64_t width = kWidth) {
  const auto named = [&](const char* name, std::vector<int64_t> shape) {
    return card(prefix + name, std::move(shape));
  };
  return {named("g1", {width}),
          named("h1", {width}),
          named("qkv", {3 * width, width}),
          named("qkv_b", {3 * width}),
          named("out", {width, width}),
          named("out_b", {width}),
          named("g2", {width}),
          named("h2", {width}),
          named("up", {4 * width, width}),
          named("up_b", {4 * width}),
          named("down", {width, 4 * width}),
          named("down_b", {width})};
}

at::Tensor block(const W& w, const at::Tensor& x, const std::string& prefix = "") {
  const auto own = [&](const char* name) { return w.at(prefix + name); };
  const int64_t width = x.size(2);
  const at::Tensor first = at::layer_norm(x, {width}, own("g1"), own("h1"));
  const auto parts = at::linear(first, own("qkv"), own("qkv_b"))
                         .view({x.size(0), x.size(1), 3, 3, -1})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
  const at::Tensor mixed =
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.1, true);
  const at::Tensor out =
      at::linear(mixed.transpose(1, 2).reshape(x.sizes()), own("out"), own("out_b"));
  const at::Tensor middle = x + at::dropout(out, 0.2, true);
  const at::Tensor second = at::layer_norm(middle, {width}, own("g2"), own("h2"));
  const at::Tensor up = at::gelu(at::linear(second, own("up"), own("up_b")));
  return middle + at::dropout(at::linear(up, own("down"), own("down_b")), 0.2, true);
}

// Reruns its part of the forward in the backward.
class Checkpointed : public torch::autograd::Function<Checkpointed> {
 public:
  using Part = std::function<at::Tensor(const at::Tensor&)>;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Part* part) {
    context->save_for_backward({x});
    context->saved_data["part"] = reinterpret_cast<int64_t>(part);
    return (*part)(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::AutoGradMode mode(true);
    const auto* part = reinterpret_cast<const Part*>(context->saved_data["part"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    torch::autograd::backward({(*part)(x)}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

TEST(Divert, GptBlocks) {
  const auto plain = [](const W& w, const at::Tensor& x) { return block(w, x); };
  expect_equal({block_cards(""), plain, normal({2, 7, kWidth}), 4}, "block");
  const auto ends = [](const W& w, const at::Tensor& x) {
    return at::linear(block(w, x), w.at("last"), w.at("last_b"));
  };
  std::vector<ParameterCard> cards = block_cards("");
  cards.push_back(card("last", {10, kWidth}));
  cards.push_back(card("last_b", {10}));
  expect_equal({cards, ends, normal({2, 7, kWidth}), 5}, "ends in a 3-D linear layer");
  // Its dropouts would differ in the second run, so the part has none.
  std::map<std::string, Checkpointed::Part> parts;  // live until the backward
  const auto checkpointed = [&parts](const W& w, const at::Tensor& x) {
    parts["feed"] = [w](const at::Tensor& in) {
      return at::linear(at::gelu(at::linear(in, w.at("up"), w.at("up_b"))), w.at("down"));
    };
    return Checkpointed::apply(x, &parts["feed"]);
  };
  const std::vector<ParameterCard> feed = {card("up", {30, kWidth}), card("up_b", {30}),
                                           card("down", {kWidth, 30})};
  expect_equal({feed, checkpointed, normal({2, 7, kWidth}), 2}, "checkpointed");
}

TEST(Divert, TiedAndReusedWeights) {
  const auto tied = [](const W& w, const at::Tensor& x) {
    return at::linear(at::tanh(at::embedding(w.at("w"), x)), w.at("w"));
  };
  expect_equal({{card("w", {20, 16})}, tied, tokens(), 2}, "embedding and head");
  const auto partly = [](const W& w, const at::Tensor& x) {
    return at::linear(at::tanh(at::embedding(w.at("w"), x, -1, false, true)), w.at("w"));
  };
  expect_equal({{card("w", {20, 16})}, partly, tokens(), 1}, "sparse embedding and head");
  for (const int times : {2, 3, 5}) {
    const auto reused = [times](const W& w, const at::Tensor& x) {
      at::Tensor y = x;
      for (int i = 0; i < times; ++i) y = at::tanh(at::linear(y, w.at("w"), w.at("b"))) + x;
      return y;
    };
    expect_equal({{card("w", {16, 16}), card("b", {16})}, reused, normal({2, 5, 16}), times},
                 cat(times, " times"));
  }
  const auto branches = [](const W& w, const at::Tensor& x) {
    const at::Tensor a = at::linear(x, w.at("w")), b = at::linear(at::sin(x), w.at("w"));
    return at::linear(a * b, w.at("w")) + at::linear(a, w.at("w"));
  };
  expect_equal({{card("w", {16, 16})}, branches, normal({6, 16}), 4}, "in branches");
}

// Autocast to bf16 while it lives.
class Autocast {
 public:
  Autocast() : before_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, before_);
  }

 private:
  bool before_;
};

TEST(Divert, AutocastToBf16) {
  const auto plain = [](const W& w, const at::Tensor& x) {
    const Autocast autocast;
    return block(w, x);
  };
  expect_equal({block_cards(""), plain, normal({2, 7, kWidth}), 4}, "block");
  // Two casts of one weight, of which one is used three times.
  const auto reused = [](const W& w, const at::Tensor& x) {
    at::Tensor y = x;
    {
      const Autocast autocast;
      for (int i = 0; i < 3; ++i) y = at::tanh(at::linear(y, w.at("w"), w.at("b"))) + x;
    }
    const Autocast autocast;
    return at::linear(y, w.at("w"), w.at("b"));
  };
  expect_equal({{card("w", {16, 16}), card("b", {16})}, reused, normal({2, 5, 16}), 4}, "reused");
  const auto conv = [](const W& w, const at::Tensor& x) {
    const Autocast autocast;
    return at::conv2d(x, w.at("w"), w.at("b"));
  };
  expect_equal({{card("w", {8, 4, 3, 3}), card("b", {8})}, conv, normal({2, 4, 9, 9}), 1}, "conv");
}

// --- Random modules
// --------------------------------------------------------------------------------

// Values are [3, 6, 8]. An op reads one or two earlier values, and weights that others may read
// too.
struct RandomOp {
  int kind, first, second, weight;
};

constexpr int kKinds = 10;

at::Tensor apply(const RandomOp& op, const std::vector<at::Tensor>& values, const W& w) {
  const at::Tensor& x = values[static_cast<size_t>(op.first)];
  const at::Tensor& other = values[static_cast<size_t>(op.second)];
  const auto own = [&](const char* name) { return w.at(cat(name, op.weight)); };
  switch (op.kind) {
    case 0:
      return at::linear(x, own("square"), own("bias"));
    case 1:
      return at::linear(x, own("square"));
    case 2:
      return at::matmul(x.flip(1), own("right"));
    case 3:
      return at::linear(x.transpose(0, 1), own("square"), own("bias")).transpose(0, 1);
    case 4:
      return at::conv1d(x.transpose(1, 2), own("kernel"), own("channels"), 1, 1).transpose(1, 2);
    case 5:
      return at::layer_norm(x, {8}, own("gain"), own("shift"));
    case 6:
      return at::tanh(x) + other;
    case 7:
      return at::gelu(x) * at::sigmoid(other);
    case 8:
      return at::dropout(x, 0.3, true) +
             at::embedding(own("table"), at::arange(18).view({3, 6}) % 5);
    default:
      return at::linear(at::gelu(at::linear(x, own("wide"))), own("narrow"), own("bias"));
  }
}

TEST(Divert, TwoHundredRandomModules) {
  std::vector<ParameterCard> cards;
  for (int i = 0; i < 2; ++i) {
    const auto add = [&](const char* name, std::vector<int64_t> shape) {
      cards.push_back(card(cat(name, i), std::move(shape)));
    };
    add("square", {8, 8});
    add("bias", {8});
    add("right", {8, 8});
    add("kernel", {8, 8, 3});
    add("channels", {8});
    add("gain", {8});
    add("shift", {8});
    add("table", {5, 8});
    add("wide", {20, 8});
    add("narrow", {8, 20});
  }
  int64_t deferred = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t count) { return static_cast<int>(random() % count); };
    std::vector<RandomOp> ops(4 + random() % 9);
    int64_t expected = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
      ops[i] = {below(kKinds), static_cast<int>(i) - std::min(below(3), static_cast<int>(i)),
                below(i + 1), below(2)};
      const bool none = ops[i].kind >= 5 && ops[i].kind <= 7;
      if (!none) expected += ops[i].kind == 9 ? 2 : 1;
    }
    const auto forward = [ops](const W& w, const at::Tensor& x) {
      std::vector<at::Tensor> values = {x};
      for (const RandomOp& op : ops) values.push_back(apply(op, values, w));
      at::Tensor sum = values[0];  // so that the backward reaches each op
      for (size_t i = 1; i < values.size(); ++i) sum = sum + values[i];
      return sum;
    };
    expect_equal({cards, forward, normal({3, 6, 8}), expected}, cat("seed ", seed));
    deferred += expected;
  }
  EXPECT_GT(deferred, 800);
}

// --- Scopes
// ----------------------------------------------------------------------------------------

TEST(Divert, HoldsForAllThreadsAndForItsOwnWeights) {
  const std::vector<ParameterCard> cards = {card("w", {6, 4})};
  Weights first(Job{}, cards, at::kCPU), second(Job{}, cards, at::kCPU);
  const at::Tensor x = at::randn({3, 4});
  const auto backward = [&](const Weights& weights) {
    torch::autograd::backward({at::linear(x, weights.all()[0].value).sum()}, {});
  };
  backward(first);
  const at::Tensor once = first.gradients().clone();
  DeferredWork work, others;
  {
    const DivertScope scope(first, work);
    std::thread([&] { backward(first); }).join();
    backward(second);
    EXPECT_EQ(work.size(), 1U);
    const DivertScope other(second, others);
    backward(second);
    EXPECT_EQ(others.size(), 1U);
  }
  EXPECT_TRUE(same_bits(first.gradients(), once));  // nothing was added
  EXPECT_TRUE(same_bits(second.gradients(), once));
  backward(first);  // no scope lives
  EXPECT_EQ(work.size(), 1U);
  EXPECT_TRUE(same_bits(first.gradients(), once + once));
  at::Tensor scratch;
  drain(work, scratch);
  EXPECT_TRUE(same_bits(first.gradients(), once + once + once));
}

// Counts the bytes of tensors that this thread has allocated and not yet freed.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    bytes += size;
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t bytes = 0;
};

// What four blocks keep after a forward, and after their input pass, in bytes.
struct Kept {
  int64_t stash = 0, late = 0;
};

Kept kept_by_blocks(int64_t rows, int64_t length) {
  const int64_t width = 48;
  std::vector<ParameterCard> cards;
  for (const char* name : {"a.", "b.", "c.", "d."}) {
    for (const ParameterCard& one : block_cards(name, width)) cards.push_back(one);
  }
  Weights weights(Job{}, cards, at::kCPU);
  W values;
  for (const Weight& weight : weights.all()) values[weight.card.name] = weight.value;
  weights.leave_apart(true);
  const at::Tensor x = at::randn({rows, length, width}).requires_grad_(true);
  const at::Tensor dy = at::randn({rows, length, width});
  DeferredWork work;
  const auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, live);
  const DivertScope scope(weights, work);
  at::Tensor y = x;
  for (const char* name : {"a.", "b.", "c.", "d."}) y = block(values, y, name);
  Kept kept;
  kept.stash = live->bytes;
  torch::autograd::backward({y}, {dy});
  y = at::Tensor();
  kept.late = live->bytes;
  EXPECT_EQ(work.size(), 16U);
  at::Tensor scratch;
  drain(work, scratch);
  weights.take_apart();
  return kept;
}

// The products keep their inputs and the gradients of their outputs, the same for every length; the
// stash has the probabilities of the attention, too, which grow with it.
TEST(Divert, KeepsLessThanTheStash) {
  const Kept brief = kept_by_blocks(4, 64);
  RecordProperty("stash_bytes", cat(brief.stash));
  RecordProperty("kept_bytes", cat(brief.late));
  EXPECT_GT(brief.late, 0);
  EXPECT_LT(brief.late, brief.stash);
  // As many tokens for each dimension of a head as in GPT-2: 1024 / 64.
  const Kept usual = kept_by_blocks(1, 256);
  RecordProperty("usual_stash_bytes", cat(usual.stash));
  RecordProperty("usual_kept_bytes", cat(usual.late));
  EXPECT_LT(2 * usual.late, usual.stash);
}

}  // namespace
}  // namespace tenuto
