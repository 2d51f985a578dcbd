"""The page's server: one app for one person at this computer."""
