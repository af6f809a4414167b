"""Past events, run through an app's groups before the app starts."""
