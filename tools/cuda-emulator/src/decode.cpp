// SPDX-License-Identifier: Apache-2.0

#include "program.hpp"

#include <algorithm>
#include <unordered_map>

namespace emulator {
namespace {

opcode opcode_of(std::string_view word) {
  std::size_t const first = std::min(word.find('.'), word.size());
  opcode op{word.substr(0, first), {}};
  for (std::size_t at = first; at < word.size();) {
    std::size_t const dot = std::min(word.find('.', at + 1), word.size());
    auto const part = word.substr(at + 1, dot - at - 1);
    op.modifiers.push_back(part.substr(0, part.find("::")));  // `shared::cta` is `shared`
    at = dot;
  }
  return op;
}

/// What a name means.
struct symbol {
  enum { reg, address } kind;
  uint64_t value;
  uint64_t width = 0;  // the bits of a register
};
using symbols = std::unordered_map<std::string, symbol>;

/// One function, or one expansion of it.
struct frame {
  symbols names{};
  int depth = 0;
  std::unordered_map<std::string_view, uint32_t> labels{};
  std::vector<std::pair<uint32_t, std::string_view>> branches{};  // to labels that may come later
};

class decoder {
 public:
  decoder(module_text const& module, variable_addresses const& addresses) : module_(module) {
    for (auto const& [name, address] : addresses) outer_[name] = {symbol::address, address};
  }

  program entry(function_text const& f) {
    p_.name = f.name;
    frame own;
    for (auto const& v : f.parameters) {
      uint64_t const at = lay_out(v, p_.parameter_bytes);
      own.names[v.name] = {symbol::address, window_of(space::parameter) + at};
      p_.parameters.push_back({at, v.bytes});
    }
    // Shared variables that the kernel names, then the dynamic ones, which all begin at the same place.
    for (bool const dynamic : {false, true}) {
      for (auto const& [name, v] : module_.shared) {
        if ((v.bytes == 0) != dynamic || std::ranges::find(f.body, name) == f.body.end()) continue;
        outer_[name] = {symbol::address, lay_out(v, p_.shared_bytes, dynamic ? 16 : 1)};
      }
    }
    body(f, own);
    instruction last;
    last.text = "ret";
    choose_handler(last, {"ret", {}});
    p_.code.push_back(last);
    allocate_registers(p_, registers_);
    return std::move(p_);
  }

 private:
  /// Makes room for a variable at the end. @returns its place
  static uint64_t lay_out(variable const& v, uint64_t& end, uint64_t least_align = 1) {
    uint64_t const align = std::max(v.align, least_align);
    uint64_t const at = (end + align - 1) / align * align;
    end = at + v.bytes;
    return at;
  }

  uint32_t here() const { return static_cast<uint32_t>(p_.code.size()); }

  void body(function_text const& f, frame& names) {
    if (names.depth > 16) throw fault("PTX: ", f.name, " calls itself: not supported");
    for (reader in{f.body}; !in.rest.empty();) {
      if (in.take("{") || in.take("}") || in.take(";")) continue;
      if (in.peek(1) == ":") names.labels[in.next()] = here();
      if (in.take(":")) continue;
      auto const begin = in.rest;
      while (in.peek() != ";") in.next();
      reader statement{begin.first(begin.size() - in.rest.size())};
      begin[0][0] == '.' ? directive(statement, names) : execute(statement, names);
    }
    names.labels["ret"] = here();
    for (auto const& [at, label] : names.branches) {
      auto const found = names.labels.find(label);
      if (found == names.labels.end()) throw fault("PTX: no label ", label, " in ", f.name);
      p_.code[at].target = found->second;
    }
  }

  void directive(reader in, frame& names) {
    auto const what = in.next();
    if (what == ".reg") {
      auto const type = type_of(in.next().substr(1));
      do {
        std::string const name(in.next());
        auto const declare = [&](std::string const& one) {
          names.names[one] = {symbol::reg, registers_++, type.kind == 'p' ? 1 : mask_of_bytes(type.bytes)};
        };
        if (in.take("<")) {  // `%r<12>`: from %r0 to %r11
          uint64_t const count = bits_of_number(in.next());
          for (uint64_t k = 0; k < count; ++k) declare(name + std::to_string(k));
          in.expect(">");
        } else {
          declare(name);
        }
      } while (in.take(","));
    } else if (what == ".local" || what == ".param") {
      auto const v = variable_of(in);
      // The address of a local variable is an offset, that of a call's parameter is complete.
      names.names[v.name] = {symbol::address,
                             lay_out(v, p_.local_bytes) + (what == ".param" ? window_of(space::local) : 0)};
    } else if (what == ".shared") {
      auto const v = variable_of(in);
      outer_[v.name] = {symbol::address, lay_out(v, p_.shared_bytes)};
    } else if (what != ".pragma") {
      throw fault("PTX: a directive that is not known: ", what);
    }
  }

  void execute(reader in, frame& names) {
    instruction i;
    i.text = {in.rest.front().data(), in.rest.back().data() + in.rest.back().size()};
    if (in.take("@")) {
      i.guard_negated = in.take("!");
      i.guard = static_cast<uint32_t>(find(in.next(), names).value);
    }
    opcode op = opcode_of(in.next());
    for (auto const word : op.modifiers) {
      if (auto const t = type_of(word)) (i.type ? i.second_type : i.type) = t;
    }
    if (op.name == "call") {
      if (call(i, in, names)) return;
    } else if (op.name == "bra") {
      names.branches.emplace_back(here(), in.next());
    } else if (op.name == "ret" && names.depth > 0) {
      names.branches.emplace_back(here(), "ret");
      op = {"bra", {}};
    } else {
      bool result = op.name != "st" && op.name != "red" && (op.name != "bar" || op.has("red"));
      while (!in.rest.empty()) {
        operand(i, in, names, result);
        result = result && in.take("|");
        in.take(",");
      }
    }
    choose_handler(i, op);
    p_.code.push_back(i);
  }

  /// What a word means: a number is an address.
  symbol find(std::string_view word, frame const& names) {
    if (is_number(word)) return {symbol::address, bits_of_number(word)};
    std::string const name(word);
    if (auto const found = names.names.find(name); found != names.names.end()) return found->second;
    if (auto const found = outer_.find(name); found != outer_.end()) return found->second;
    auto const which = std::ranges::find(special_registers, name);
    if (which == special_registers.end()) throw fault("PTX: a name that is not known: ", name);
    p_.specials.emplace_back(which - special_registers.begin(), registers_);
    return outer_[name] = {symbol::reg, registers_++};
  }

  template <std::size_t N>
  static void add(std::array<uint32_t, N>& list, uint8_t& count, uint32_t r) {
    if (count == N) throw fault("PTX: too many operands");
    list[count++] = r;
  }

  /// One operand, or several in braces.
  void operand(instruction& i, reader& in, frame const& names, bool result) {
    if (in.take("{")) {
      do operand(i, in, names, result);
      while (in.take(","));
      return in.expect("}");
    }
    if (in.take("_")) return add(i.to, i.results, no_register);
    bool const address = in.take("[");
    bool const negated = in.take("!");
    symbol const s = find(in.next(), names);
    uint64_t const offset = in.take("+") || is_number(in.peek()) ? bits_of_number(in.next()) : 0;
    if (address) in.expect("]");
    auto const r = static_cast<uint32_t>(s.value);
    if (result && s.kind == symbol::reg && !address) {
      add(i.to, i.results, r);
      i.width = s.width;
    } else if (s.kind == symbol::reg) {
      add(i.from, i.sources, negated ? inverse(r, i.text) : r);
      if (address) i.offset = offset;
    } else {
      add(i.from, i.sources, constant(s.value + offset));
    }
  }

  /// `!%p` as a source: an instruction more.
  uint32_t inverse(uint32_t predicate, std::string_view text) {
    instruction i;
    i.text = text;
    i.width = 1;
    add(i.from, i.sources, predicate);
    add(i.to, i.results, registers_++);
    choose_handler(i, {"not", {"pred"}});
    p_.code.push_back(i);
    return i.to[0];
  }

  uint32_t constant(uint64_t bits) {
    auto const [at, added] = constants_.try_emplace(bits, static_cast<uint32_t>(p_.constants.size()));
    if (added) p_.constants.push_back(bits);
    return at->second | constant_bit;
  }

  /// `(result), function, (parameters)`: the body of the function with its parameters' names for the caller's.
  /// @returns false where there is none: a function of the driver, for instance __assertfail, whose handler sees the parameters
  bool call(instruction& i, reader& in, frame const& names) {
    auto const list = [&] {
      std::vector<symbol> arguments;
      if (!in.take("(")) return arguments;
      while (!in.take(")")) {
        arguments.push_back(find(in.next(), names));
        in.take(",");
      }
      in.take(",");
      return arguments;
    };
    auto const results = list();
    auto const f = module_.functions.find(in.next());
    in.take(",");
    auto const parameters = list();
    if (f == module_.functions.end() || i.guard != no_register) {
      if (!parameters.empty()) add(i.from, i.sources, constant(parameters[0].value));
      return false;
    }
    frame inner{{}, names.depth + 1};
    for (std::size_t k = 0; k < parameters.size(); ++k)
      inner.names[f->second.parameters.at(k).name] = parameters[k];
    for (std::size_t k = 0; k < results.size(); ++k) inner.names[f->second.results.at(k).name] = results[k];
    body(f->second, inner);
    return true;
  }

  module_text const& module_;
  program p_;
  uint32_t registers_ = 0;
  symbols outer_;  // variables of the module, and special registers
  std::unordered_map<uint64_t, uint32_t> constants_;
};

}  // namespace

bool opcode::has(std::string_view word) const {
  return std::ranges::find(modifiers, word) != modifiers.end();
}

program decode(module_text const& module, function_text const& entry, variable_addresses const& addresses) {
  return decoder(module, addresses).entry(entry);
}

}  // namespace emulator
