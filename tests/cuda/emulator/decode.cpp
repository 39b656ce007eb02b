// SPDX-License-Identifier: Apache-2.0

#include "program.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace emulator {
namespace {

std::uint64_t aligned(std::uint64_t at, std::uint64_t align) { return (at + align - 1) / align * align; }

opcode opcode_of(std::string_view word) {
  opcode op;
  for (std::size_t at = 0; at <= word.size();) {
    std::size_t const dot = std::min(word.find('.', at), word.size());
    auto const part = word.substr(at, dot - at);
    if (at == 0) {
      op.name = part;
    } else if (!part.empty()) {  // `shared::cta` is `shared`
      op.modifiers.push_back(part.substr(0, part.find("::")));
    }
    at = dot + 1;
  }
  return op;
}

std::map<std::string_view, special> const specials{{"%tid.x", special::tid_x},
                                                   {"%tid.y", special::tid_y},
                                                   {"%tid.z", special::tid_z},
                                                   {"%ntid.x", special::ntid_x},
                                                   {"%ntid.y", special::ntid_y},
                                                   {"%ntid.z", special::ntid_z},
                                                   {"%ctaid.x", special::ctaid_x},
                                                   {"%ctaid.y", special::ctaid_y},
                                                   {"%ctaid.z", special::ctaid_z},
                                                   {"%nctaid.x", special::nctaid_x},
                                                   {"%nctaid.y", special::nctaid_y},
                                                   {"%nctaid.z", special::nctaid_z},
                                                   {"%laneid", special::laneid},
                                                   {"%warpid", special::warpid},
                                                   {"%lanemask_eq", special::lanemask_eq},
                                                   {"%lanemask_lt", special::lanemask_lt},
                                                   {"%lanemask_le", special::lanemask_le},
                                                   {"%lanemask_gt", special::lanemask_gt},
                                                   {"%lanemask_ge", special::lanemask_ge},
                                                   {"%smid", special::smid},
                                                   {"%nsmid", special::nsmid},
                                                   {"%clock", special::clock},
                                                   {"%clock64", special::clock},
                                                   {"%globaltimer", special::clock}};

/// What a name means inside of one function, or one expansion of it.
struct frame {
  std::unordered_map<std::string_view, std::uint32_t> registers;
  std::unordered_map<std::string_view, std::uint32_t> predicates;
  std::unordered_map<std::string_view, std::uint8_t> widths;
  std::unordered_map<std::string_view, std::uint64_t> addresses;  // of parameters and local variables
  std::unordered_map<std::string_view, std::uint32_t> labels;
  std::vector<std::pair<std::uint32_t, std::string_view>> branches;  // to labels that may come later
  std::vector<std::uint32_t> returns;
};

class decoder {
 public:
  decoder(module_text const& module, std::function<std::uint64_t(std::string_view)> const& address_of)
      : module_(module), address_of_(address_of) {}

  program entry(function_text const& f) {
    p_.name = f.name;
    frame own;
    for (auto const& v : f.parameters) {
      // A scalar is aligned to its size.
      p_.parameter_bytes = aligned(p_.parameter_bytes, v.align);
      own.addresses[v.name] = parameter_window + p_.parameter_bytes;
      p_.parameters.push_back({p_.parameter_bytes, v.bytes});
      p_.parameter_bytes += v.bytes;
    }
    lay_out_shared(f);
    body(f, own, 0);
    auto& last = p_.code.emplace_back();
    last.text = "ret";
    choose_handler(last, {"ret", {}});
    for (auto const at : own.returns) p_.code[at].target = static_cast<std::uint32_t>(p_.code.size() - 1);
    allocate_registers(p_, virtual_registers_);
    return std::move(p_);
  }

 private:
  /// Shared variables that the kernel names, then the dynamic ones, which all begin at the same place.
  void lay_out_shared(function_text const& f) {
    for (auto const& [name, v] : module_.shared) {
      if (f.body.find(name) == std::string_view::npos) continue;
      p_.shared_bytes = aligned(p_.shared_bytes, v.align);
      shared_[name] = p_.shared_bytes;
      p_.shared_bytes += v.bytes;
    }
    for (auto const& [name, v] : module_.dynamic) {
      if (f.body.find(name) == std::string_view::npos) continue;
      p_.shared_bytes = aligned(p_.shared_bytes, std::max<std::uint64_t>(v.align, 16));
      shared_[name] = p_.shared_bytes;
    }
  }

  void body(function_text const& f, frame& names, int depth) {
    if (depth > 16) throw fault("PTX: " + f.name + " calls itself: not supported");
    std::string_view const text = f.body;
    std::size_t begin = 0;
    int inside = 0;  // of a bracket of an operand
    for (std::size_t i = 0; i < text.size(); ++i) {
      char const c = text[i];
      bool const empty = stripped(text.substr(begin, i - begin)).empty();
      if (c == '{' && empty) {
        begin = i + 1;
      } else if (c == '{' || c == '(' || c == '[') {
        ++inside;
      } else if (c == '}' && inside == 0) {
        begin = i + 1;
      } else if (c == '}' || c == ')' || c == ']') {
        --inside;
      } else if (c == ':' && inside == 0 && text.substr(i, 2) != "::" && text[i - 1] != ':') {
        names.labels[stripped(text.substr(begin, i - begin))] = static_cast<std::uint32_t>(p_.code.size());
        begin = i + 1;
      } else if (c == ';') {
        statement(stripped(text.substr(begin, i - begin)), names, depth);
        begin = i + 1;
      }
    }
    for (auto const& [at, label] : names.branches) {
      auto const found = names.labels.find(label);
      if (found == names.labels.end()) throw fault("PTX: no label " + std::string(label) + " in " + f.name);
      p_.code[at].target = found->second;
    }
  }

  void statement(std::string_view text, frame& names, int depth) {
    if (text.empty()) return;
    if (text[0] == '.') return directive(text, names);
    instruction i;
    i.text = text;
    if (text[0] == '@') {
      std::size_t const space = text.find_first_of(" \t");
      auto guard = text.substr(1, space - 1);
      if (guard[0] == '!') {
        i.guard_negated = true;
        guard.remove_prefix(1);
      }
      i.guard = predicate(guard, names);
      text = stripped(text.substr(space));
    }
    std::size_t const space = std::min(text.find_first_of(" \t\n"), text.size());
    opcode const op = opcode_of(text.substr(0, space));
    auto const arguments = split_arguments(text.substr(space));
    if (op.name == "call") return call(i, op, arguments, names, depth);
    if (op.name == "bra") {
      names.branches.emplace_back(static_cast<std::uint32_t>(p_.code.size()), arguments.at(0));
    } else if (op.name == "ret" && depth > 0) {
      names.returns.push_back(static_cast<std::uint32_t>(p_.code.size()));
      choose_handler(i, {"bra", {}});
      p_.code.push_back(i);
      return;
    } else {
      operands(i, op, arguments, names);
    }
    for (auto const word : op.modifiers) {
      auto const t = type_of(word);
      if (!t) continue;
      (i.type ? i.second_type : i.type) = t;
    }
    choose_handler(i, op);
    p_.code.push_back(i);
  }

  void directive(std::string_view text, frame& names) {
    if (text.starts_with(".reg")) {
      auto const rest = stripped(text.substr(4));
      std::size_t const space = rest.find_first_of(" \t");
      auto const type = type_of(rest.substr(1, space - 1));
      for (auto const name : split_arguments(rest.substr(space))) declare(name, type, names);
    } else if (text.starts_with(".local") || text.starts_with(".param")) {
      auto const v = variable_of(text.substr(6));
      p_.local_bytes = aligned(p_.local_bytes, v.align);
      // The address of a local variable is an offset, that of a call's parameter is complete.
      names.addresses[key(v.name)] = p_.local_bytes + (text.starts_with(".param") ? local_window : 0);
      p_.local_bytes += v.bytes;
    } else if (text.starts_with(".shared")) {
      auto const v = variable_of(text.substr(7));
      p_.shared_bytes = aligned(p_.shared_bytes, v.align);
      shared_[std::string(v.name)] = p_.shared_bytes;
      p_.shared_bytes += v.bytes;
    } else if (!text.starts_with(".pragma") && !text.starts_with(".loc")) {
      throw fault("PTX: a directive that is not known: " + std::string(text.substr(0, 80)));
    }
  }

  /// `%r<12>` or a single name.
  void declare(std::string_view name, value_type type, frame& names) {
    auto const one = [&](std::string_view n) {
      if (type.kind == 'p') {
        names.predicates[n] = p_.predicates++;
      } else {
        names.registers[n] = virtual_registers_++;
        names.widths[n] = type.bytes;
      }
    };
    std::size_t const angle = name.find('<');
    if (angle == std::string_view::npos) return one(name);
    std::uint64_t const count = bits_of_number(name.substr(angle + 1, name.find('>') - angle - 1));
    std::string const stem(name.substr(0, angle));
    for (std::uint64_t k = 0; k < count; ++k) one(key(stem + std::to_string(k)));
  }

  /// A name that lives as long as the decoder.
  std::string_view key(std::string name) { return *kept_.insert(std::move(name)).first; }

  void operands(instruction& i, opcode const& op, std::vector<std::string_view> const& arguments,
                frame const& names) {
    bool const barrier = op.name == "bar" || op.name == "barrier";
    bool const has_result = op.name != "st" && op.name != "red" && (!barrier || op.has("red"));
    for (std::size_t k = 0; k < arguments.size(); ++k) {
      if (k == 0 && has_result) {
        result(i, arguments[k], names);
      } else {
        source(i, arguments[k], names);
      }
    }
  }

  static std::uint32_t predicate(std::string_view name, frame const& names) {
    auto const p = names.predicates.find(name);
    if (p == names.predicates.end()) throw fault("PTX: no predicate " + std::string(name));
    return p->second;
  }

  void result(instruction& i, std::string_view text, frame const& names) {
    if (text[0] == '{') {
      for (auto const part : split_arguments(text.substr(1, text.size() - 2))) result(i, part, names);
      return;
    }
    if (std::size_t const bar = text.find('|'); bar != std::string_view::npos) {
      result(i, stripped(text.substr(0, bar)), names);
      auto const second = stripped(text.substr(bar + 1));
      if (second != "_") i.to_predicate[i.to_predicate[0] == no_register ? 0 : 1] = predicate(second, names);
      return;
    }
    if (auto const p = names.predicates.find(text); p != names.predicates.end()) {
      i.to_predicate[0] = p->second;
      return;
    }
    if (i.results == i.to.size()) throw fault("PTX: too many results: " + std::string(i.text));
    if (text == "_") {
      i.to[i.results++] = no_register;
      return;
    }
    auto const r = names.registers.find(text);
    if (r == names.registers.end())
      throw fault("PTX: no register " + std::string(text) + ": " + std::string(i.text));
    i.to[i.results++] = r->second;
    i.width = names.widths.at(text);
  }

  void source(instruction& i, std::string_view text, frame const& names) {
    if (text[0] == '{') {
      for (auto const part : split_arguments(text.substr(1, text.size() - 2))) source(i, part, names);
      return;
    }
    if (text[0] == '[') {
      text = stripped(text.substr(1, text.size() - 2));
      std::size_t const sign = text.find_first_of("+-", 1);
      if (sign != std::string_view::npos) {
        auto offset = text.substr(sign);
        if (offset.starts_with("+-")) offset.remove_prefix(1);
        i.offset = static_cast<std::int64_t>(bits_of_number(offset));
        text = stripped(text.substr(0, sign));
      }
    }
    if (text[0] == '!') {
      i.predicate_negated = true;
      text.remove_prefix(1);
    }
    if (auto const p = names.predicates.find(text); p != names.predicates.end()) {
      (i.predicate == no_register ? i.predicate : i.second_predicate) = p->second;
      return;
    }
    add_source(i, source_register(text, names, i));
  }

  static void add_source(instruction& i, std::uint32_t r) {
    if (i.sources == i.from.size()) throw fault("PTX: too many sources: " + std::string(i.text));
    i.from[i.sources++] = r;
  }

  std::uint32_t source_register(std::string_view text, frame const& names, instruction const& i) {
    if (auto const r = names.registers.find(text); r != names.registers.end()) return r->second;
    if (is_number(text)) return constant(bits_of_number(text));
    if (text[0] == '%') {
      auto const s = specials.find(text);
      if (s == specials.end())
        throw fault("PTX: a special register that is not known: " + std::string(i.text));
      for (auto const& [which, r] : p_.specials) {
        if (which == s->second) return r;
      }
      p_.specials.emplace_back(s->second, virtual_registers_);
      return virtual_registers_++;
    }
    std::uint64_t offset = 0;
    if (std::size_t const plus = text.find('+'); plus != std::string_view::npos) {
      offset = bits_of_number(stripped(text.substr(plus + 1)));
      text = stripped(text.substr(0, plus));
    }
    if (auto const a = names.addresses.find(text); a != names.addresses.end())
      return constant(a->second + offset);
    if (auto const s = shared_.find(text); s != shared_.end()) return constant(s->second + offset);
    return constant(address_of_(text) + offset);
  }

  std::uint32_t constant(std::uint64_t bits) {
    auto const [at, added] = constants_.try_emplace(bits, static_cast<std::uint32_t>(p_.constants.size()));
    if (added) p_.constants.push_back(bits);
    return at->second | constant_bit;
  }

  /// `(result), function, (parameters)`: the body of the function with its parameters' names for the caller's.
  void call(instruction i, opcode const& op, std::vector<std::string_view> const& arguments,
            frame const& names, int depth) {
    std::vector<std::string_view> results;
    std::size_t at = 0;
    auto const list = [](std::string_view text) { return split_arguments(text.substr(1, text.size() - 2)); };
    if (arguments.at(0)[0] == '(') results = list(arguments[at++]);
    auto const name = arguments.at(at++);
    std::vector<std::string_view> parameters;
    if (at < arguments.size()) parameters = list(arguments[at]);
    auto const f = module_.functions.find(name);
    if (f == module_.functions.end() || i.guard != no_register) {
      // A function of the driver, for instance __assertfail: its handler sees the first parameter.
      if (!parameters.empty()) add_source(i, constant(names.addresses.at(parameters[0])));
      choose_handler(i, op);
      p_.code.push_back(i);
      return;
    }
    frame inner;
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      inner.addresses[f->second.parameters.at(k).name] = names.addresses.at(parameters[k]);
    }
    for (std::size_t k = 0; k < results.size(); ++k) {
      inner.addresses[f->second.results.at(k).name] = names.addresses.at(results[k]);
    }
    body(f->second, inner, depth + 1);
    for (auto const back : inner.returns) p_.code[back].target = static_cast<std::uint32_t>(p_.code.size());
  }

  module_text const& module_;
  std::function<std::uint64_t(std::string_view)> const& address_of_;
  program p_;
  std::uint32_t virtual_registers_ = 0;
  std::map<std::string, std::uint64_t, std::less<>> shared_;
  std::unordered_map<std::uint64_t, std::uint32_t> constants_;
  std::set<std::string> kept_;
};

}  // namespace

bool opcode::has(std::string_view word) const {
  return std::ranges::find(modifiers, word) != modifiers.end();
}

program decode(module_text const& module, function_text const& entry,
               std::function<std::uint64_t(std::string_view)> const& address_of) {
  return decoder(module, address_of).entry(entry);
}

}  // namespace emulator
