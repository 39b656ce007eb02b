# SPDX-License-Identifier: Apache-2.0
# The text of language_model and globalq_evidence without --text: a file that never changes, so that losses in tests do not depend on edits.
set(language_model_text ${PROJECT_SOURCE_DIR}/LICENSE)
