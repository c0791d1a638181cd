"""The language of cases and verbose lines: options, problems, tags, attributes, as benchdnn and
oneDNN write them. What is said here has no knowledge of any operation."""
