"""Past events in files, run through an app's groups before the app starts."""
