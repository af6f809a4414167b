"""From a syntax tree to an app that can be deployed: names and types bound, groups cut, channels wired."""
