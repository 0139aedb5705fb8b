// Every kernel of the patterns compiled for two architectures, with what the machine code says: registers and memory of
// a thread's own within the pattern's budget, and accesses of 16 bytes where the binding promises them.
#include <regex>

#include "graph_ir/samples.h"
#include "runtime/cuda/nvrtc.h"
#include "tests/cuda/patterns.h"

namespace fj::test {

namespace {

const cuda::Nvrtc& nvrtc() {
  static const cuda::Nvrtc compiler({FJ_TEST_NVRTC});
  return compiler;
}

/// Loads and stores of 16 bytes in a kernel's PTX.
int wide_accesses(const std::string& ptx, const std::string& kernel) {
  const std::size_t begin = ptx.find(".entry " + kernel + "("), end = ptx.find("\n}", begin);
  const std::string body = ptx.substr(begin, end - begin);
  static const std::regex wide("(ld|st)\\.global(\\.nc)?\\.(v4\\.[a-z]32|v2\\.[a-z]64)");
  return int(std::distance(std::sregex_iterator(body.begin(), body.end(), wide), {}));
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

}  // namespace

#define NEEDS_NVRTC() \
  if (!nvrtc().missing().empty()) GTEST_SKIP() << nvrtc().missing()

TEST(Nvrtc, says_what_to_install_if_it_is_not_there) {
  const cuda::Nvrtc none({"/nowhere"});
  if (none.missing().empty()) GTEST_SKIP() << "the loader finds libnvrtc by itself here";
  EXPECT_NE(none.missing().find("pip install nvidia-cuda-nvrtc-cu12"), std::string::npos);
  EXPECT_EQ(none.compile("", 80).error, none.missing());
}

TEST(Nvrtc, says_what_is_wrong_with_a_text) {
  NEEDS_NVRTC();
  const cuda::Compiled compiled = nvrtc().compile("extern \"C\" __global__ void f() { nonsense; }", 80);
  EXPECT_NE(compiled.error, "");
  EXPECT_NE(compiled.log.find("nonsense"), std::string::npos) << compiled.log;
}

TEST(Nvrtc, compiles_every_pattern_within_its_budget) {
  NEEDS_NVRTC();
  struct Text {
    int registers, local_bytes;
    const CudaKernel::Form form;
  };
  std::vector<Text> texts;
  std::vector<std::string> sources;
  for (const Pattern& pattern : patterns())
    for (const CudaKernel& kernel : cuda_kernels(parsed(pattern), "p" + std::to_string(texts.size()) + "_"))
      for (const CudaKernel::Form& form : kernel.forms) {
        sources.push_back(form.text.source);
        texts.push_back({pattern.registers, pattern.local_bytes, form});
      }
  for (int architecture : {80, 90}) {
    const cuda::Compiled compiled = nvrtc().compile(cuda::translation_unit(sources), architecture, true);
    ASSERT_EQ(compiled.error, "") << compiled.log.substr(0, 4000);
    for (const Text& text : texts) {
      const std::string& name = text.form.text.name;
      const cuda::KernelFigures figures = cuda::kernel_figures(compiled.cubin, name);
      EXPECT_LE(figures.registers, text.registers) << "sm_" << architecture << "\n" << text.form.text.source;
      EXPECT_GT(figures.registers, 0) << name;
      EXPECT_LE(figures.local_bytes, text.local_bytes) << "sm_" << architecture << "\n" << text.form.text.source;
      const int packs = count(text.form.text.source, "load_pack<") + count(text.form.text.source, "store_pack(");
      EXPECT_GE(wide_accesses(compiled.ptx, name), packs) << text.form.text.source;
    }
  }
}

TEST(Nvrtc, compiles_every_pattern_however_it_is_dealt_out) {
  NEEDS_NVRTC();
  std::vector<std::string> sources;
  for (int alternative = 0; alternative < 5; ++alternative)
    for (const Pattern& pattern : patterns())
      for (const CudaKernel& kernel :
           cuda_kernels(parsed(pattern), "p" + std::to_string(sources.size()) + "_", alternative))
        sources.push_back(kernel.forms[0].text.source);
  const cuda::Compiled compiled = nvrtc().compile(cuda::translation_unit(sources), 90);
  EXPECT_EQ(compiled.error, "") << compiled.log.substr(0, 4000);
}

TEST(Nvrtc, a_table_of_kernels_stays_among_the_parameters) {
  NEEDS_NVRTC();
  std::vector<std::string> sources, names;
  for (const Pattern& pattern : patterns())
    for (const CudaKernel& kernel : cuda_kernels(parsed(pattern), "p" + std::to_string(sources.size()) + "_")) {
      cuda::Binding binding = kernel.forms[0].binding;
      binding.over_table = true;
      const cuda::KernelText text = cuda::emit_kernel(kernel.kernel, kernel.program, binding);
      sources.push_back(text.source);
      if (pattern.local_bytes == 0) names.push_back(text.name);
    }
  const cuda::Compiled compiled = nvrtc().compile(cuda::translation_unit(sources), 90, true);
  ASSERT_EQ(compiled.error, "") << compiled.log.substr(0, 4000);
  for (const std::string& name : names) EXPECT_EQ(cuda::kernel_figures(compiled.cubin, name).local_bytes, 0) << name;
}

TEST(Nvrtc, compiles_every_operation) {
  NEEDS_NVRTC();
  std::vector<std::string> sources;
  for (Op op : all_ops())
    for (DType dtype : sample_dtypes(op)) {
      // One integer of each kind: the others are the same templates.
      if (is_complex(dtype) || (is_integer(dtype) && dtype != DType::U8 && dtype != DType::I32 && dtype != DType::I64))
        continue;
      const std::vector<Sample> all = samples(op, dtype);
      if (all.empty()) continue;
      for (const CudaKernel& kernel :
           cuda_kernels(all[0].graph, std::string(name(op)) + "_" + std::string(name(dtype)) + "_"))
        if (cuda::unsupported(kernel.kernel, kernel.program).empty()) sources.push_back(kernel.forms[0].text.source);
    }
  const cuda::Compiled compiled = nvrtc().compile(cuda::translation_unit(sources), 80);
  EXPECT_EQ(compiled.error, "") << compiled.log.substr(0, 4000);
}

}  // namespace fj::test
