#include "jaxlib/ipu/runtime/host/lapack_shapes.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ipu::host {
namespace {

// A call that LAPACK accepts. Shapes are separated by spaces; a letter is an
// extent, equal letters are equal extents, "." is a shape without any. All
// shapes start with the same batch dimensions. Once m and n are known,
// k = min(m, n) and e = n - 1.
struct Rule {
  std::string_view function;
  std::string_view elements;  // letters of the element types, as in the name
  // An attribute and the values it may have, for each value that matters.
  std::string_view mode;
  std::string_view operands;
  std::string_view results;
};

constexpr Rule kRules[] = {
    {"gees", "sd", "mode=NV sort=N", "nn", "nn nn n n . ."},
    {"gees", "cz", "mode=NV sort=N", "nn", "nn nn n . ."},
    {"geev", "sd", "compute_left=NV compute_right=NV", "nn", "n n nn nn ."},
    {"geev", "cz", "compute_left=NV compute_right=NV", "nn", "n nn nn ."},
    {"gehrd", "sdcz", "", "nn", "nn e ."},
    {"geqp3", "sdcz", "", "mn n", "mn n k"},
    {"geqrf", "sdcz", "", "mn", "mn k"},
    {"gesdd", "sdcz", "mode=A", "mn", "mn k mm nn ."},
    {"gesdd", "sdcz", "mode=S", "mn", "mn k mk kn ."},
    {"gesdd", "sdcz", "mode=N", "mn", "mn k mp qn ."},
    {"gesvd", "sdcz", "mode=A", "mn", "mn k mm nn ."},
    {"gesvd", "sdcz", "mode=S", "mn", "mn k mk kn ."},
    {"gesvd", "sdcz", "mode=N", "mn", "mn k mp qn ."},
    {"getrf", "sdcz", "", "mn", "mn k ."},
    {"gtsv", "sdcz", "", "n n n nr", "n n n nr ."},
    {"heevd", "cz", "mode=NV uplo=LU", "nn", "nn n ."},
    {"hetrd", "cz", "uplo=LU", "nn", "nn n e e ."},
    {"orgqr", "sd", "", "mn r", "mn"},
    {"ormqr", "sd", "left=\1", "mr r mn", "mn"},
    {"ormqr", "sd", "left=", "nr r mn", "mn"},
    {"potrf", "sdcz", "uplo=LU", "nn", "nn ."},
    {"syevd", "sd", "mode=NV uplo=LU", "nn", "nn n ."},
    {"sytrd", "sd", "uplo=LU", "nn", "nn n e e ."},
    {"trsm", "sdcz", "side=L uplo=LU trans_x=NTC diag=NU", "mm mn", "mn"},
    {"trsm", "sdcz", "side=R uplo=LU trans_x=NTC diag=NU", "nn mn", "mn"},
    {"ungqr", "cz", "", "mn r", "mn"},
    {"unmqr", "cz", "left=\1", "mr r mn", "mn"},
    {"unmqr", "cz", "left=", "nr r mn", "mn"},
};

constexpr std::string_view kPerturbed = "tridiagonal_solve_perturbed_ffi";
constexpr Rule kPerturbedRule = {"", "", "", "n n n nr", "nr"};

// Takes the text up to the next space off the front of a list.
std::optional<std::string_view> Next(std::string_view& list) {
  if (list.empty()) return std::nullopt;
  const size_t end = std::min(list.find(' '), list.size());
  const std::string_view item = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return item;
}

// Whether all attributes have values that the rule allows. A boolean false is
// an empty list of values, true is "\1".
bool InMode(const Rule& rule, const CallSite& site) {
  std::string_view modes = rule.mode;
  while (const auto mode = Next(modes)) {
    const size_t equals = mode->find('=');
    const std::string_view name = mode->substr(0, equals);
    const std::string_view values = mode->substr(equals + 1);
    const auto attribute =
        std::find_if(site.attributes.begin(), site.attributes.end(),
                     [&](const auto& a) { return a.name == name; });
    if (attribute == site.attributes.end() ||
        attribute->kind != program::kScalar || attribute->data.size() != 1) {
      return false;
    }
    const char value = attribute->data[0];
    if (values.empty() ? value != 0 : values.find(value) == values.npos)
      return false;
  }
  return true;
}

class Matcher {
 public:
  explicit Matcher(size_t batch_rank) : batch_rank_(batch_rank) {}

  bool Match(std::string_view patterns, const std::vector<TensorInfo>& infos) {
    size_t i = 0;
    while (const auto pattern = Next(patterns)) {
      if (i == infos.size() || !Match(*pattern, infos[i++].shape)) return false;
    }
    return i == infos.size();
  }

 private:
  bool Match(std::string_view pattern, std::span<const int64_t> shape) {
    if (pattern == ".") pattern = "";
    if (shape.size() != batch_rank_ + pattern.size()) return false;
    const auto batch = shape.first(batch_rank_);
    if (!batch_) batch_ = {batch.begin(), batch.end()};
    if (!std::equal(batch.begin(), batch.end(), batch_->begin())) return false;
    for (size_t d = 0; d < pattern.size(); ++d) {
      const int64_t extent = shape[batch_rank_ + d];
      const char letter = pattern[d];
      // LAPACK refuses empty matrices, and its handlers do not expect that.
      if (extent < (letter == 'e' ? 0 : 1)) return false;
      if (letter == 'k' && extents_.contains('m')) {
        extents_['k'] = std::min(extents_['m'], extents_['n']);
      }
      if (letter == 'e') extents_['e'] = extents_['n'] - 1;
      if (extents_.try_emplace(letter, extent).first->second != extent) {
        return false;
      }
    }
    return true;
  }

  const size_t batch_rank_;
  std::optional<std::vector<int64_t>> batch_;
  std::map<char, int64_t> extents_;
};

bool Accepts(const Rule& rule, const CallSite& site) {
  if (site.operands.empty() || !InMode(rule, site)) return false;
  const size_t rank = site.operands[0].shape.size();
  const size_t inner = std::min(rule.operands.find(' '), rule.operands.size());
  if (rank < inner) return false;
  Matcher matcher(rank - inner);
  return matcher.Match(rule.operands, site.operands) &&
         matcher.Match(rule.results, site.results);
}

std::string Show(const std::vector<TensorInfo>& infos) {
  std::string text = "(";
  for (const TensorInfo& info : infos) {
    if (text.size() > 1) text += ", ";
    text += '[';
    for (size_t d = 0; d < info.shape.size(); ++d) {
      text += (d ? "," : "") + std::to_string(info.shape[d]);
    }
    text += ']';
  }
  return text + ')';
}

}  // namespace

Status CheckLapackCall(const CallSite& site) {
  constexpr std::string_view kPrefix = "lapack_", kSuffix = "_ffi";
  std::string_view name = site.target;
  bool accepted = false;
  if (name == kPerturbed) {
    accepted = Accepts(kPerturbedRule, site);
  } else {
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
        name.size() < kPrefix.size() + kSuffix.size() + 1) {
      return Status();
    }
    const char element = name[kPrefix.size()];
    name.remove_prefix(kPrefix.size() + 1);
    name.remove_suffix(kSuffix.size());
    bool known = false;
    for (const Rule& rule : kRules) {
      if (rule.function != name ||
          rule.elements.find(element) == rule.elements.npos)
        continue;
      known = true;
      accepted |= Accepts(rule, site);
    }
    if (!known) {
      return Unimplemented("the shapes of " + site.target +
                           " are unknown to the IPU backend, which therefore "
                           "does not call it");
    }
  }
  if (accepted) return Status();
  return InvalidArgument(site.target + " cannot be called with " +
                         Show(site.operands) + " -> " + Show(site.results) +
                         ": shapes or attributes do not belong together");
}

}  // namespace ipu::host
