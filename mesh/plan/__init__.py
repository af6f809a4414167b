"""From a syntax tree to an app that can be deployed: names bound, groups cut, channels wired."""
