// Options and logs: what the texts mean and what a user is told about a wrong one.
#include <gtest/gtest.h>

#include "runtime/base/log.h"
#include "runtime/base/options.h"

namespace fj {
namespace {

TEST(Options, EveryRowTakesItsOwnText) {
  Options options;
  for (const OptionRow& row : option_rows()) {
    std::string text = option_text(options, row.name);
    EXPECT_EQ(set_option(options, row.name, text), std::nullopt) << row.name;
    EXPECT_EQ(option_text(options, row.name), text) << row.name;
    EXPECT_FALSE(row.sentence.empty());
  }
  EXPECT_EQ(options, Options{});
}

TEST(Options, TextsAreReadByType) {
  Options options;
  EXPECT_FALSE(set_option(options, "fullgraph", "1"));
  EXPECT_TRUE(options.fullgraph);
  EXPECT_FALSE(set_option(options, "fullgraph", "Off"));
  EXPECT_FALSE(options.fullgraph);
  EXPECT_FALSE(set_option(options, "dynamic", "True"));
  EXPECT_EQ(options.dynamic, true);
  EXPECT_FALSE(set_option(options, "dynamic", "none"));
  EXPECT_EQ(options.dynamic, std::nullopt);
  EXPECT_FALSE(set_option(options, "threads", "3"));
  EXPECT_EQ(options.threads, 3);
}

TEST(Options, AWrongTextIsExplainedAndChangesNothing) {
  Options options;
  EXPECT_EQ(set_option(options, "threads", "-1"), "option threads is a whole number, 0 or more, not '-1'");
  EXPECT_EQ(set_option(options, "strict", "maybe"), "option strict is true or false, not 'maybe'");
  EXPECT_NE(set_option(options, "fulgraph", "1")->find("fullgraph"), std::string::npos);
  EXPECT_EQ(options, Options{});
}

TEST(Options, BlocksNestOnTheirThread) {
  EXPECT_FALSE(options_overridden());
  Options outer = current_options();
  outer.backend = "llvm";
  push_options(outer, 1);
  Options inner = current_options();
  inner.strict = !inner.strict;
  push_options(inner, 4);
  EXPECT_EQ(current_options(), inner);
  EXPECT_EQ(options_given(), 5u);
  pop_options();
  EXPECT_EQ(options_given(), 1u);
  EXPECT_EQ(current_options().backend, "llvm");
  pop_options();
  EXPECT_FALSE(options_overridden());
}

TEST(Log, PatternsChooseFunctions) {
  EXPECT_EQ(set_logs("graph_breaks, graphs:Encoder.*"), std::nullopt);
  EXPECT_TRUE(log_enabled(Artifact::graph_breaks, "anything"));
  EXPECT_TRUE(log_enabled(Artifact::graphs, "Encoder.forward"));
  EXPECT_TRUE(log_enabled(Artifact::graphs, "make.<locals>.Encoder.forward"));
  EXPECT_FALSE(log_enabled(Artifact::graphs, "Decoder.forward"));
  EXPECT_FALSE(log_enabled(Artifact::kernels, "Encoder.forward"));
  EXPECT_EQ(set_logs("all"), std::nullopt);
  EXPECT_TRUE(log_enabled(Artifact::passes));
  EXPECT_NE(set_logs("graph_brakes")->find("graph_breaks"), std::string::npos);
  EXPECT_TRUE(log_enabled(Artifact::passes)) << "a wrong choice leaves the old one";
  EXPECT_EQ(set_logs(""), std::nullopt);
  EXPECT_FALSE(log_enabled(Artifact::graph_breaks, "anything"));
}

TEST(Log, ASinkReceivesWhatIsLogged) {
  std::string received;
  set_log_sink([&](Artifact artifact, LogLevel level, const std::string& text) {
    received += std::string(name(artifact)) + ":" + std::to_string(int(level)) + ":" + text + "\n";
  });
  log(Artifact::recompiles, "text");
  log(Artifact::graphs, "long");
  log(Artifact::fallbacks, "ours", LogLevel::warning);
  set_log_sink({});
  EXPECT_EQ(received, "recompiles:20:text\ngraphs:10:long\nfallbacks:30:ours\n");
}

}  // namespace
}  // namespace fj
