"""The paper's experiments: specification -> runs -> tables -> pictures -> a report."""
