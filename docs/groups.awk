# SPDX-License-Identifier: Apache-2.0
# Doxygen's input filter for headers: puts the contents of each into the group of its folder (docs/groups.dox) and hides
# namespaces detail. Of classes there that are bases of public classes, named in `bases`, the public part stays: Doxygen shows
# their members on the pages of the latter. Lines keep their numbers.

BEGIN {
  bases = "^(class|struct) (collective|level_table|shared_draw|wrapped_operator) *(:.*)?\\{$"
  hide = "/** @cond */"
  show = "/** @endcond */"
  end = "/** @} */"
}

# FOLDER for include/globalq/FOLDER/..; train_learn for include/globalq/train/learn/..; internal for folders detail; that of its part
# for an umbrella
function group_of(path, parts, n) {
  if (path ~ /\/detail\//) return "internal"
  sub(/.*\/globalq\//, "", path)
  n = split(path, parts, "/")
  if (n == 1) return parts[1] ~ /^(train|baseline|model)\.hpp$/ ? substr(parts[1], 1, length(parts[1]) - 4) : "core"
  return parts[1] == "train" ? parts[1] "_" parts[2] : parts[1]
}

function begin(group) { return "/** @addtogroup api_" group " */ /** @{ */" }

# In a namespace detail, lines since the last blank one wait until it is known whether they belong to a base.
function flush(marker, k) {
  for (k = 1; k <= held; ++k) print k == 1 && line[k] == "" ? marker : line[k]
  held = 0
}

FNR == 1 {
  print begin(group_of(FILENAME))
  next
}
/^ *namespace (.*::)?detail *\{/ && !inside {
  inside = 1
  kept = 0
  opened = FNR
  print $0 " " hide
  next
}
# clang-format leaves out the comment where there is one line between
inside && (/^ *\}  \/\/ namespace (.*::)?detail/ || (/^\}$/ && FNR == opened + 2)) {
  flush("")
  inside = 0
  print show " " $0
  next
}
!inside {
  # what a group has at the level of a file does not hold in namespaces
  if (/^ *namespace .*\{$/ || /^extern "C" \{$/) $0 = $0 " " begin(group_of(FILENAME))
  if (/^ *\}  \/\/ namespace/ || /^\}.*extern "C"/) $0 = end " " $0
  print
  next
}
kept {
  if (/^ (protected|private):$/) {
    if (shown) $0 = $0 " " hide
    shown = 0
  } else if (/^ public:$/) {
    if (!shown) $0 = show " " $0
    shown = 1
  } else if (/^\};/) {
    $0 = (shown ? "" : show " ") $0 " " end " " hide
    kept = 0
  }
  print
  next
}
{
  if ($0 == "") flush("")
  line[++held] = $0
  if ($0 ~ bases) {
    flush(show " " begin("internal"))
    kept = shown = 1
  }
}
END {
  flush("")
  print end
}
