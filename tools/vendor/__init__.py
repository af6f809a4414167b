"""Files of the dashboard that come from npm: versions are pinned here, copies are in the wheel."""
